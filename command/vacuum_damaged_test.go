package command_test

import (
	"encoding/binary"
	"testing"

	"holdfast"
	"holdfast/command"
)

// Vacuum says that it does not change a damaged file. One that bbolt wrote, without seals, of
// which one leaf had two keys in the wrong order, was cut by 19 MiB and had pages overwritten before that was
// met. So for damage of other kinds that reading each page does not show.
func TestVacuumChecksFirst(t *testing.T) {
	t.Setenv("HOLDFAST_SEALS", "off")
	const size, head, freelist = 4096, 16, 16
	element := func(leaf []byte, i int) []byte { return leaf[head+16*i:][:16] }
	for _, c := range []struct {
		name, want string
		change     func(t *testing.T, b []byte, root, leaf uint64)
	}{
		{"keys out of order", "is not below", func(_ *testing.T, b []byte, _, leaf uint64) {
			at := func(i int) []byte { // its key
				e := element(b[leaf*size:][:size], i)
				from := leaf*size + head + uint64(16*i) + uint64(binary.NativeEndian.Uint32(e[4:]))
				return b[from:][:8]
			}
			copy(at(0), "99999999")
		}},
		{"a page named twice", "the page is used twice", func(_ *testing.T, b []byte, root, _ uint64) {
			branch := b[root*size:][:size]
			copy(element(branch, 3)[8:], element(branch, 2)[8:16])
		}},
		{"a page in use in the freelist", "free", func(t *testing.T, b []byte, _, leaf uint64) {
			list := min(binary.NativeEndian.Uint64(b[head+32:]), binary.NativeEndian.Uint64(b[size+head+32:]))
			if list > uint64(len(b)/size) {
				t.Fatal("no freelist page")
			}
			numbers := b[list*size+freelist:]
			for i := uint64(0); ; i++ { // in the place of the number before which it belongs
				if binary.NativeEndian.Uint64(numbers[8*i+8:]) > leaf {
					binary.NativeEndian.PutUint64(numbers[8*i:], leaf)
					return
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := workdir(t)
			makeBloated(t, "made.db", 20_000)
			must(t, "surgery", "freelist", "abandon", "made.db", "-o", "listless.db")
			must(t, "surgery", "freelist", "rebuild", "listless.db", "-o", "bloated.db")
			root, leaf := rootPage(t, "bloated.db", "b"), firstLeaf(t, "bloated.db", "b")
			damage(t, "bloated.db", func(b []byte) []byte { c.change(t, b, root, leaf); return b })
			wantIn(t, run(t, "check", "bloated.db"), command.ExitDamaged, c.want, "")
			before := snapshot(t, dir)
			r := run(t, "vacuum", "bloated.db")
			wantIn(t, r, command.ExitFailed, "", "bloated.db: nothing was changed: damaged: page ")
			wantIn(t, r, command.ExitFailed, "", c.want)
			if after := snapshot(t, dir); after != before {
				t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func rootPage(t *testing.T, path, bucket string) (id uint64) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	check(t, db.View(func(tx *holdfast.Tx) error {
		id = uint64(tx.Bucket([]byte(bucket)).RootPage())
		return nil
	}))
	return id
}
