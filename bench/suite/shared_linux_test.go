package suite

import (
	"io"
	"os"
	"testing"
	"time"
)

// TestSharedGroups runs every group once, as small as can be, and sees a table with targets.
func TestSharedGroups(t *testing.T) {
	for _, group := range SharedGroups {
		t.Run(group.Name, func(t *testing.T) {
			c := Config{Dir: t.TempDir(), Keys: 1000, Rounds: 1, Time: 20 * time.Millisecond, Emptied: 1 << 20, Log: io.Discard}
			table, err := group.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			if len(table.Rows) < 1 || len(table.Targets) < 1 || table.Title == "" {
				t.Errorf("%q has %d rows, there are %d targets", table.Title, len(table.Rows), len(table.Targets))
			}
			for _, row := range table.Rows {
				for name, cell := range row.Cells {
					if cell.Median <= 0 {
						t.Errorf("%s: %s: %v", row.Workload, name, cell.Median)
					}
				}
			}
			if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
