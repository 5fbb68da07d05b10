package vfs

import (
	"errors"
	"os"
	"testing"
	"time"
)

var errInjected = errors.New("injected")

// callEvery makes two calls of each kind and returns their errors.
func callEvery(file File) (errs [KindCount][2]error) {
	p := pattern(10, 1)
	var mappings [2]Mapping
	for i := range 2 {
		mappings[i], errs[KindMap][i] = file.Map(10, MapOptions{})
		if mappings[i] != nil {
			errs[KindMlock][i] = mappings[i].Lock(5)
			errs[KindUnmap][i] = mappings[i].Close()
		}
		_, errs[KindRead][i] = file.ReadAt(p, 3)
		errs[KindSync][i] = file.Sync()
		_, errs[KindSize][i] = file.Size()
		errs[KindTruncate][i] = file.Truncate(30)
		errs[KindGrow][i] = file.Grow(40)
		errs[KindLock][i] = file.Lock(true, time.Second)
		errs[KindUnlock][i] = file.Unlock()
	}
	_, errs[KindWrite][0] = file.WriteAt(p, 5)
	errs[KindWrite][1] = file.WriteVec([][]byte{p[:5], p[5:]}, 6)
	errs[KindClose][0] = file.Close()
	return errs
}

func TestInjectFailNth(t *testing.T) {
	for kind := range KindCount {
		for n := int64(1); n <= 2; n++ {
			if kind == KindClose && n == 2 {
				continue
			}
			t.Run(kind.String(), func(t *testing.T) {
				mem := NewMem("db")
				before := pattern(100, 2)
				write(t, mem.Open(), before, 0)
				file := NewInject(mem.Open(), FailNth(kind, n, errInjected))
				for called, errs := range callEvery(file) {
					for i, err := range errs {
						if Kind(called) == kind && int64(i) == n-1 {
							wantError(t, kind.String(), err, errInjected)
							if wrapped := kind == KindMap; errors.Is(err, ErrMapping) != wrapped || (err == errInjected) == wrapped {
								t.Errorf("%v", err)
							}
						} else if err != nil {
							t.Errorf("%v %d: %v", Kind(called), i+1, err)
						}
					}
				}
				// Even a Close that fails closes.
				wantError(t, "close", file.Close(), os.ErrClosed)
			})
		}
	}
}

// TestInjectHeldBack: a failed call does nothing to the file.
func TestInjectHeldBack(t *testing.T) {
	for _, kind := range []Kind{KindWrite, KindTruncate, KindGrow} {
		mem := NewMem("db")
		content := pattern(35, 2)
		write(t, mem.Open(), content, 0)
		callEvery(NewInject(mem.Open(), func(op Op) error {
			if op.Kind == KindWrite || op.Kind == KindTruncate || op.Kind == KindGrow {
				return errInjected
			}
			return nil
		}))
		wantBytes(t, mem.Bytes(), content)

		mem = mem.Clone()
		callEvery(NewInject(mem.Open(), func(op Op) error {
			if op.Kind == kind {
				return nil
			}
			return errInjected
		}))
		if string(mem.Bytes()) == string(content) {
			t.Errorf("%v was held back too", kind)
		}
	}
}

func TestInjectOps(t *testing.T) {
	var ops [KindCount][]Op
	mem := NewMem("db")
	write(t, mem.Open(), pattern(100, 2), 0)
	file := NewInject(mem.Open(), func(op Op) error {
		ops[op.Kind] = append(ops[op.Kind], op)
		return nil
	})
	for kind, errs := range callEvery(file) {
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("%v: %v", Kind(kind), err)
		}
	}
	want := map[Kind]Op{
		KindRead:     {Off: 3, Len: 10},
		KindWrite:    {Off: 6, Len: 10},
		KindTruncate: {Len: 30},
		KindGrow:     {Len: 40},
		KindMap:      {Len: 10},
		KindMlock:    {Len: 5},
		KindUnmap:    {Len: 10},
	}
	for kind := range KindCount {
		count := 2
		if kind == KindClose {
			count = 1
		}
		if len(ops[kind]) != count || file.Count(kind) != int64(count) {
			t.Errorf("%v: %d ops, count %d, want %d", kind, len(ops[kind]), file.Count(kind), count)
			continue
		}
		last := want[kind]
		last.Kind, last.N = kind, int64(count)
		if got := ops[kind][count-1]; got != last {
			t.Errorf("got %+v, want %+v", got, last)
		}
	}
}

func TestInjectPartialWrite(t *testing.T) {
	p := pattern(10, 1)
	for bytes := range int64(12) {
		partial := &PartialWrite{Bytes: bytes, Err: errInjected}
		wantError(t, "a partial write", partial, errInjected)
		for name, writeAll := range map[string]func(File) error{
			"WriteAt": func(file File) error {
				n, err := file.WriteAt(p, 7)
				if n != int(min(bytes, 10)) {
					t.Errorf("wrote %d bytes, want %d", n, bytes)
				}
				return err
			},
			"WriteVec": func(file File) error {
				return file.WriteVec([][]byte{p[:3], nil, p[3:4], p[4:]}, 7)
			},
		} {
			mem := NewMem("db")
			file := NewInject(mem.Open(), FailNth(KindWrite, 1, partial))
			if err := writeAll(file); err != errInjected {
				t.Errorf("%s: %v", name, err)
			}
			var want []byte
			if bytes > 0 {
				want = append(make([]byte, 7), p[:min(bytes, 10)]...)
			}
			wantBytes(t, mem.Bytes(), want)
		}
	}
}

// A write that fails need not tell what it has written.
func TestInjectSilentWrite(t *testing.T) {
	mem := NewMem("mem")
	f := NewInject(mem.Open(), func(op Op) error {
		if op.Kind == KindWrite {
			return &PartialWrite{Bytes: 3, Err: errInjected, Silent: true}
		}
		return nil
	})
	if n, err := f.WriteAt([]byte("abcdef"), 0); n != 0 || err != errInjected || string(mem.Bytes()) != "abc" {
		t.Errorf("%d bytes, %v, the file has %q", n, err, mem.Bytes())
	}
}
