package page

import (
	"fmt"
	"hash/crc32"
	"testing"
)

// Zeros that are counted give the checksum of zeros that are summed.
func TestSumWithZeros(t *testing.T) {
	content := make([]byte, 70_100)
	for n := 0; n <= 70_000; n++ {
		end := n % 100
		content[end] = byte(n)
		if got, want := sumWithZeros(content[:end+1+n], end+1), crc32.Checksum(content[:end+1+n], castagnoli); got != want {
			t.Fatalf("%d bytes and %d zeros: %08x, want %08x", end+1, n, got, want)
		}
		content[end] = 0
		if n > 5000 {
			n += 12
		}
	}
}

// BenchmarkSeal seals pages that are more or less full.
func BenchmarkSeal(b *testing.B) {
	for _, share := range []int{5, 50, 70, 80, 90, 100} {
		b.Run(fmt.Sprintf("full=%d%%", share), func(b *testing.B) {
			run := make([]byte, 4096)
			end := (4096 - SealSize) * share / 100
			for i := range run[:end] {
				run[i] = byte(i)
			}
			for b.Loop() {
				Seal(run, 7, end)
			}
		})
	}
}
