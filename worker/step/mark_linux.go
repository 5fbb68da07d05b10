package step

import (
	"fmt"
	"os"
	"strings"

	"holdfast/worker/mount"
)

// findMark finds the source of the nursery's mark, by which recovery after a crash knows the
// processes in a namespace. A step's namespace gets a mount with it: its root need not be an overlay.
func findMark(n *mount.Namespace) (mark string, err error) {
	err = n.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(b), "\n") {
			_, after, ok := strings.Cut(line, " - tmpfs ")
			source, _, _ := strings.Cut(after, " ")
			if ok && strings.HasPrefix(source, "holdfast-") && strings.HasSuffix(source, "-nursery") {
				mark = source
			}
		}
		return nil
	})
	if err == nil && mark == "" {
		return "tmpfs", nil
	}
	if err != nil {
		return "", fmt.Errorf("step: %w", err)
	}
	return mark, nil
}
