// Package crash holds tests that cut the power. Random histories run on
// Holdfast over a disk that knows what has been flushed (vfs.Crash); behind
// each write, growth and flush, disks that a power failure could leave there are
// made and opened, by Holdfast and by bbolt. A history may go on with one of
// these disks, or after its process was killed, or after a call on the file
// failed, or after bbolt has written the file; and, where a flush has lost commits
// that were made without any, with whatever is sound (lost_test.go).
//
// The oracle: the state found is that of the last acknowledged commit, or of the
// one under way, as a model of the content knows them; its structure checks;
// each page is reachable or free, and not both; the same holds after another
// commit and after a clean close. While the power stays on, readers go on to see
// what they saw, and no page waits for a reader if there is none.
//
// TestBlobPowerCut (blob_test.go) does the same for a store of blobs, TestExchangePowerCut for one that receives blobs, with
// histories of their own.
//
// A history is a Script: text, made up from a seed. One that fails is cut down
// to what is needed to fail, and printed. A test of one fixed history is written like
// TestFailedCreation (creation_test.go); a new kind of step is declared at Step.Kind
// (script_test.go), run in run_test.go, and chosen at random in generate_test.go.
//
//	HOLDFAST_SEED=n       this history only
//	HOLDFAST_HISTORIES=n  that many histories (from HOLDFAST_SEED on)
//	HOLDFAST_SOAK=10m     TestSoak runs histories for that long
//	HOLDFAST_SCRIPT=file  TestScript runs the script in a file
package crash
