package step

import (
	"fmt"
	"strings"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/mount"
)

// findMark finds the source of the nursery's mark, by which recovery after a crash knows the
// processes in a namespace. A step's namespace gets a mount with it: its root need not be an overlay.
func findMark(n *mount.Namespace) (mark string, err error) {
	err = n.Do(func() error {
		return mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
			if m.Type == "tmpfs" && strings.HasPrefix(m.Source, "holdfast-") && strings.HasSuffix(m.Source, "-nursery") {
				mark = m.Source
			}
		}, "-nursery ")
	})
	if err == nil && mark == "" {
		return "tmpfs", nil
	}
	if err != nil {
		return "", fmt.Errorf("step: %w", err)
	}
	return mark, nil
}
