package command

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/snapshot/driver/zfs"
)

// ofManager are the sources that the manager of mounts gives to overlays.
var ofManager = regexp.MustCompile(`^holdfast-[0-9a-f]{16}-[0-9]+$`)

// mountedHere lists the overlays of all stores, and what is mounted of directories, images and datasets of
// the store root.
func mountedHere(root string) ([]mounted, error) {
	dataset, err := zfs.DatasetOf(root)
	if err != nil {
		return nil, err
	}
	store, err := shownStoreOf(root)
	if err != nil {
		return nil, err
	}
	list := []mounted{}
	err = mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		shown := mounted{Path: m.Point, Type: m.Type, Source: m.Source}
		of, found := store.bound(m)
		switch {
		case m.Type == "overlay" && ofManager.MatchString(m.Source):
		case strings.HasPrefix(m.Source, store.snapshots):
		case dataset != "" && strings.HasPrefix(m.Source, dataset+"/s"):
		case found:
			shown.Type, shown.Source = "bind", store.snapshots+of
		default:
			return
		}
		list = append(list, shown)
	})
	return list, err
}

// sameFiles tells whether another process sees the files that this one does. That of one which has ended is not known.
func sameFiles(pid int) bool {
	for _, of := range []string{"ns/mnt", "root"} {
		own, err := os.Stat("/proc/self/" + of)
		its, itsErr := os.Stat(fmt.Sprintf("/proc/%d/%s", pid, of))
		if err == nil && itsErr == nil && !os.SameFile(own, its) {
			return false
		}
	}
	return true
}
