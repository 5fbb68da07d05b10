//go:build unix

package blob

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"holdfast"
)

// A Put that a fault of the caller's memory had left went on in the next one, which stored both contents.
func TestPutAfterAPanic(t *testing.T) {
	for _, o := range []Options{{}, {Chunking: FastCDC}} {
		for _, procs := range []int{1, 2} {
			func() {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				data := random(1, 4<<20)
				path := filepath.Join(t.TempDir(), "f")
				must(t, os.WriteFile(path, data, 0o600))
				f := must2(os.Open(path))
				mem := must2(syscall.Mmap(int(f.Fd()), 0, len(data), syscall.PROT_READ, syscall.MAP_SHARED))
				defer func() {
					must(t, syscall.Munmap(mem))
					must(t, f.Close())
				}()
				must(t, os.Truncate(path, 2<<20))
				db := newStore(t, o)
				var ref Ref
				good := random(9, 2<<20)
				must(t, db.Update(func(tx *holdfast.Tx) error {
					s := openIn(tx)
					func() {
						defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
						defer func() { t.Log("panic:", recover()) }()
						_, err := s.Put(mem)
						t.Log(err)
					}()
					var err error
					ref, err = s.Put(good)
					return err
				}))
				view(t, db, func(s *Store) {
					checkStore(t, s)
					if ref.Size() != int64(len(good)) || !bytes.Equal(readAll(t, s, ref), good) {
						t.Errorf("%v, %d processors: another blob than was put: %d bytes, not %d", o, procs, ref.Size(), len(good))
					}
				})
			}()
		}
	}
}
