package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// twoOpened are two open files of one file of 8,192 bytes, the second one open with flag.
func twoOpened(t *testing.T, flag int) (a, b *OSFile) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	open := func(flag int) *OSFile {
		f, err := OpenOS(path, flag, 0, nil)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f.(*OSFile)
	}
	a, b = open(os.O_RDWR), open(flag)
	if _, err := a.TryLockByte(0); errors.Is(err, errors.ErrUnsupported) {
		if runtime.GOOS == "linux" && runtime.GOARCH != "arm" {
			t.Fatal(err)
		}
		if _, err := a.MapWords(8192); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("words are mapped, and bytes cannot be locked (%v)", err)
		}
		t.Skip(err)
	}
	must(t, a.UnlockByte(0))
	return a, b
}

func TestWords(t *testing.T) {
	fa, fb := twoOpened(t, os.O_RDWR)
	a, err := fa.MapWords(8192)
	must(t, err)
	b, err := fb.MapWords(4096)
	must(t, err)
	if a.Len() != 1024 || b.Len() != 512 {
		t.Errorf("%d and %d words", a.Len(), b.Len())
	}
	a.Store(511, 5)
	b.Or(511, 10)
	a.AndNot(511, 1)
	if b.CompareAndSwap(511, 15, 1) || !b.CompareAndSwap(511, 14, 7) || a.Load(511) != 7 {
		t.Errorf("the last word is %d", a.Load(511))
	}
	var bytes [8]byte
	if _, err := fa.ReadAt(bytes[:], 511*8); err != nil || bytes[0]+bytes[7] != 7 {
		t.Errorf("the file has %v (%v)", bytes, err)
	}
	for _, n := range []int{0, -8, 12, 8200} {
		if _, err := fa.MapWords(n); !errors.Is(err, ErrMapping) {
			t.Errorf("%d bytes of 8,192 are mapped (%v)", n, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there is a word 512 of 512")
			}
		}()
		b.Load(512)
	}()
	must(t, b.Close())
	must(t, b.Close())
	must(t, a.Close())
}

// A fault in the words is caught, and no other panic is.
func TestWordsFault(t *testing.T) {
	f, _ := twoOpened(t, os.O_RDWR)
	w, err := f.MapWords(8192)
	must(t, err)
	defer w.Close()
	must(t, f.Truncate(0))
	for name, call := range map[string]func(){
		"Load": func() { w.Load(512) }, "Store": func() { w.Store(0, 1) }, "Or": func() { w.Or(0, 1) },
		"AndNot": func() { w.AndNot(0, 1) }, "CompareAndSwap": func() { w.CompareAndSwap(0, 0, 1) },
	} {
		var fault error
		func() {
			defer w.CatchFault(debug.SetPanicOnFault(true), func(err error) { fault = err })
			call()
		}()
		if !errors.Is(fault, ErrShortened) {
			t.Errorf("%s: %v", name, fault)
		}
	}
	defer func() {
		if recover() != "other" {
			t.Error("a panic was lost")
		}
	}()
	defer w.CatchFault(debug.SetPanicOnFault(true), func(err error) { t.Error(err) })
	panic("other")
}

func TestLockByte(t *testing.T) {
	const far = 1<<63 - 2 // a lock of the byte after it looks like one without an end
	a, b := twoOpened(t, os.O_RDONLY)
	for _, off := range []int64{0, 1, 8192, 1 << 62, far} {
		locks := func(want bool) {
			t.Helper()
			if got, err := b.ByteLocked(off); err != nil || got != want {
				t.Errorf("byte %d is locked: %v, and not %v (%v)", off, got, want, err)
			}
		}
		locks(false)
		for range 2 { // it is the open file that has it, so it can take it twice
			ok, err := a.TryLockByte(off)
			if must(t, err); !ok {
				t.Errorf("byte %d cannot be locked", off)
			}
		}
		locks(true)
		if own, err := a.ByteLocked(off); err != nil || own {
			t.Errorf("byte %d is locked by another open file (%v)", off, err)
		}
		must(t, b.Lock(true, time.Second)) // has nothing to do with it
		must(t, b.Unlock())
		must(t, a.UnlockByte(off))
		must(t, a.UnlockByte(off))
		locks(false)
	}
	if ok, err := b.TryLockByte(1); err == nil {
		t.Errorf("a file that is open for reading locks a byte: %v", ok)
	}
}

// A lock of a byte lasts as long as a mapping of its open file.
func TestLockByteOfAMapping(t *testing.T) {
	a, b := twoOpened(t, os.O_RDWR)
	w, err := a.MapWords(8192)
	must(t, err)
	_, err = a.TryLockByte(3)
	must(t, err)
	if ok, err := b.TryLockByte(3); ok || err != nil {
		t.Errorf("two open files have one lock (%v)", err)
	}
	must(t, a.Close())
	if locked, err := b.ByteLocked(3); err != nil || !locked {
		t.Errorf("the lock went with the descriptor (%v)", err)
	}
	must(t, w.Close())
	if locked, err := b.ByteLocked(3); err != nil || locked {
		t.Errorf("the lock stays (%v)", err)
	}
	if _, err := a.TryLockByte(3); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a byte of a closed file is locked (%v)", err)
	}
}

func TestInode(t *testing.T) {
	a, b := twoOpened(t, os.O_RDONLY)
	device, number, err := a.Inode()
	must(t, err)
	device2, number2, err := b.Inode()
	must(t, err)
	other, _ := twoOpened(t, os.O_RDONLY)
	_, number3, err := other.Inode()
	if must(t, err); device != device2 || number != number2 || number == number3 {
		t.Errorf("inodes %d:%d, %d:%d and %d", device, number, device2, number2, number3)
	}
}
