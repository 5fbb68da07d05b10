package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"holdfast/worker/snapshot/driver/zfs"
)

// ofManager are the sources that the manager of mounts gives to overlays.
var ofManager = regexp.MustCompile(`^holdfast-[0-9a-f]{16}-[0-9]+$`)

// unescape undoes what mountinfo does to names.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountedHere lists the overlays of all stores, and what is mounted of directories, images and datasets of the store root.
func mountedHere(root string) ([]mounted, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	dataset, err := zfs.DatasetOf(root)
	if err != nil {
		return nil, err
	}
	snapshots := filepath.Join(root, "snapshots") + "/"
	list := []mounted{}
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 2 {
			continue
		}
		m := mounted{Path: unescape.Replace(left[4]), Type: right[0], Source: unescape.Replace(right[1])}
		// The root of a bind mount is a path on its file system, of which the store's may be a part only.
		inside := unescape.Replace(left[3])
		_, of, found := strings.Cut(inside, "/snapshots/")
		switch {
		case m.Type == "overlay" && ofManager.MatchString(m.Source):
		case strings.HasPrefix(m.Source, snapshots):
		case dataset != "" && strings.HasPrefix(m.Source, dataset+"/s"):
		case found && strings.HasSuffix(snapshots, strings.TrimSuffix(inside, of)):
			m.Type, m.Source = "bind", snapshots+of
		default:
			continue
		}
		list = append(list, m)
	}
	return list, nil
}
