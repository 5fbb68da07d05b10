//go:build !next

package suite

var (
	nextGroups  []Group
	nextEngines []Engine
)

// LeftOut says which groups this program does not have.
const LeftOut = "Not in this program, which was built without the tag `next`: relaxed commits, page seals."
