package drivertest

import (
	"os"
	"path/filepath"
	"strings"
)

// loops are the loop devices of files in dir.
func loops(dir string) (found []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), dir) && !strings.Contains(string(b), "(deleted)") {
			found = append(found, f+": "+strings.TrimSpace(string(b)))
		}
	}
	return found
}
