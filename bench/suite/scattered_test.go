package suite

import (
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
)

// BenchmarkOpenScattered opens files with free pages in one run, and with as many runs
// as there are free pages: what opening by the record still follows.
func BenchmarkOpenScattered(b *testing.B) {
	for _, c := range []struct{ pages, stride uint64 }{{1_200_000, 1}, {600_000, 2}, {1_200_000, 2}} {
		b.Run(fmt.Sprintf("free=%d/stride=%d", c.pages, c.stride), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "db")
			if err := WithFreePages(path, c.pages, c.stride); err != nil {
				b.Fatal(err)
			}
			if _, err := openOnce(Holdfast, path); err != nil { // which records them
				b.Fatal(err)
			}
			for b.Loop() {
				db, err := holdfast.Open(path, 0o600, nil)
				if err != nil {
					b.Fatal(err)
				}
				if how := db.Stats().OpenPath; how != holdfast.OpenedByRecord {
					b.Fatalf("opened by %s", how)
				}
				b.StopTimer()
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
