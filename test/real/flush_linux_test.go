package real

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/vfs"
	"holdfast/test/vm"
)

// What a "flush" process says of the pieces that it writes: Sync has returned; it is there.
const (
	saysFlushed = "flushed"
	saysThere   = "there"
)

// flushPiece is the length of a piece, in bytes; between two is as much that stays reserved.
const flushPiece = 4096

func init() {
	roles["flush"] = runFlush
}

func flushedPiece(n uint64) []byte {
	return bytes.Repeat([]byte{byte(n%255 + 1)}, flushPiece)
}

// runFlush writes one piece after the other into reserved blocks, each with a flush of its
// own, until the power is cut. An order that says Stop looks for o.Done pieces.
func runFlush(o order) error {
	f, err := vfs.OpenOS(o.Path, os.O_RDWR|os.O_CREATE, 0o600, nil)
	if err != nil {
		return err
	}
	if o.Stop {
		got := make([]byte, flushPiece)
		for n := range o.Done {
			if _, err := f.ReadAt(got, int64(n)*2*flushPiece); err != nil {
				return err
			}
			if !bytes.Equal(got, flushedPiece(n)) {
				return fmt.Errorf("piece %d of %d flushed ones is lost: it begins with %x", n, o.Done, got[:16])
			}
		}
		say(saysThere, o.Done)
		return nil
	}
	if err := f.Grow(8 << 20); err != nil {
		return err
	}
	for n := range uint64(1000) {
		if _, err := f.WriteAt(flushedPiece(n), int64(n)*2*flushPiece); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		say(saysFlushed, n+1)
	}
	return nil
}

// On ext4 without a journal most of what was flushed during the last seconds before a power
// cut read as zeros: see TestSyncWritesInode in internal/vfs. Few pieces: the inode holds
// their extents by itself, and is what the kernel does not write.
func TestMachineFlush(t *testing.T) {
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			t.Parallel()
			image := fs.newImage(t)
			run := func(o order, line func(m *vm.Machine, what string, n uint64)) {
				d := cutDisk{t: t, program: os.Args[0]}
				c := newMachine(t, d.program)
				c.Disks = []string{image}
				c.Command = fs.mountScript("/dev/vda") + d.script(o) + "wait $!\n"
				m, err := vm.Start(t.Context(), c)
				must(t, err)
				for text, ok := m.Line(); ok; text, ok = m.Line() {
					what, number, _ := strings.Cut(text, " ")
					n, err := strconv.ParseUint(number, 10, 64)
					if err != nil {
						t.Errorf("the machine said: %s", text)
					}
					line(m, what, n)
				}
				must(t, m.Wait())
			}
			o := order{Role: "flush", Path: "/mnt/file"}
			run(o, func(m *vm.Machine, what string, n uint64) {
				if what == saysFlushed {
					o.Done = max(o.Done, n)
				}
				if n >= 3 {
					m.Cut()
				}
			})
			must(t, fs.mend(t, image))
			there := uint64(0)
			o.Stop = true
			run(o, func(_ *vm.Machine, _ string, n uint64) { there = n })
			if there != o.Done || there < 3 {
				t.Errorf("%d flushed pieces, %d there", o.Done, there)
			}
		})
	}
}
