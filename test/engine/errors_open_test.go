package engine

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/page"
)

// openCases are the rows of docs/errors.md about opening.
var openCases = map[string]func(*errorRow){
	"not-a-database": func(r *errorRow) {
		r.tryOpen("text", bytes.Repeat([]byte("not a database\n"), 10_000))
		r.tryOpen("zeros", make([]byte, 1<<20))
		s := newSample(r)
		r.tryOpen("without its first two pages", s.data[2*samplePageSize:])
	},
	"tiny-file": func(r *errorRow) {
		s := newSample(r)
		for _, n := range []int{1, page.HeaderSize, page.HeaderSize + page.MetaSize - 1} {
			r.tryOpen(fmt.Sprint(n, " bytes"), s.data[:n])
		}
	},
	"empty-read-only": func(r *errorRow) {
		r.try("empty", []byte{}, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, nil)
		})
	},
	"empty-writable": func(r *errorRow) {
		r.try("empty", []byte{}, func(path string) error {
			if err := openUse(path, holdfast.Options{}, useEverything); err != nil {
				return err
			}
			return openUse(path, holdfast.Options{ReadOnly: true}, useEverything)
		})
	},
	"one-page": func(r *errorRow) {
		s := newSample(r)
		for _, n := range []int{page.HeaderSize + page.MetaSize, samplePageSize - 1, samplePageSize, 2*samplePageSize - 1} {
			r.tryOpen(fmt.Sprint(n, " bytes"), s.data[:n])
		}
	},
	"truncated": func(r *errorRow) {
		s := newSample(r)
		for pages := 2; pages < int(s.meta.HighWater); pages++ {
			for way, options := range ways {
				if pages%16 != 0 && pages > 32 && options.NoSync {
					continue // this way differs little
				}
				r.try(fmt.Sprintf("%d pages, %s", pages, way), s.data[:pages*samplePageSize], func(path string) error {
					return openUse(path, options, useEverything)
				})
			}
		}
	},
	"truncated-tail": func(r *errorRow) {
		s := newSample(r)
		r.tryUse("to the high-water mark", s.data[:int(s.meta.HighWater)*samplePageSize], readEverything)
	},
	"page-size-option": func(r *errorRow) {
		s := newSample(r)
		for _, ps := range []int{-1, 1, 512, 4096, 1 << 30} {
			r.try(fmt.Sprint(ps), s.data, func(path string) error {
				return openUse(path, holdfast.Options{PageSize: ps}, readEverything)
			})
		}
	},
	"page-size-bad-option": func(r *errorRow) {
		for _, ps := range []int{-1, 1, 511, 16<<20 + 1, math.MaxInt} {
			r.try(fmt.Sprint(ps), []byte{}, func(path string) error {
				return openUse(path, holdfast.Options{PageSize: ps}, nil)
			})
		}
	},
	"page-size-absurd": func(r *errorRow) {
		for _, ps := range []uint32{0, 1, 511, 16<<20 + 1, math.MaxUint32} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.PageSize = ps })
			r.tryOpen(fmt.Sprint(ps), s.data)
		}
	},
	"page-size-wrong": func(r *errorRow) {
		for _, ps := range []uint32{512, 1000, 2048, 4096, 65536} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.PageSize = ps; m.HighWater = min(m.HighWater, 8) })
			for way, options := range ways {
				r.try(fmt.Sprint(ps, ", ", way), s.data, func(path string) error {
					return openUse(path, options, useEverything)
				})
			}
		}
	},
	"newer-version": func(r *errorRow) {
		s := newSample(r)
		for slot := range page.ID(2) {
			s.set32(slot, page.HeaderSize+4, 3)
		}
		r.tryOpen("version 3", s.data)
		data := emptyDatabase(r)
		for slot := range 2 {
			data[slot*4096+page.HeaderSize+4] = 3
		}
		r.tryOpen("empty database", data)
	},
	"interrupted-creation": func(r *errorRow) {
		for name, cut := range map[string]func(data []byte) []byte{
			"nothing written":      func(data []byte) []byte { clear(data); return data },
			"nothing, and shorter": func(data []byte) []byte { clear(data); return data[:3*4096] },
			"no metas":             func(data []byte) []byte { clear(data[:2*4096]); return data },
			"no metas, no root":    func(data []byte) []byte { clear(data[:2*4096]); return data[:3*4096] },
			"torn metas": func(data []byte) []byte {
				clear(data[:512])
				clear(data[4096:])
				copy(data[2*4096:], emptyDatabase(r)[2*4096:])
				return data
			},
		} {
			r.try(name, cut(emptyDatabase(r)), func(path string) error {
				if err := openUse(path, holdfast.Options{ReadOnly: true}, nil); err != holdfast.ErrInvalid {
					return fmt.Errorf("opened for reading: %v", err)
				}
				if err := openUse(path, holdfast.Options{PageSize: 4096}, useEverything); err != nil {
					return err
				}
				return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error { return db.Update(fillSample) })
			})
		}
	},
	"both-metas-torn": func(r *errorRow) {
		s := newSample(r)
		s.page(0)[page.HeaderSize+40] ^= 1
		s.page(1)[page.HeaderSize+20] ^= 0x80
		r.tryOpen("one bit each", s.data)
	},
	"one-meta-torn": oneMetaTorn,
	"other-byte-order": func(r *errorRow) {
		s := newSample(r)
		for slot := range page.ID(2) {
			swapMeta(s.page(slot)[page.HeaderSize:])
		}
		r.tryOpen("swapped", s.data)
	},
	"high-water-absurd": func(r *errorRow) {
		for _, hw := range []page.ID{0, 2, 1 << 32, math.MaxUint64 / 1024, math.MaxUint64/1024 + 2, math.MaxUint64} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.HighWater = hw })
			r.tryOpen(fmt.Sprint(hw), s.data)
		}
	},
	"torn-copy": func(r *errorRow) {
		f := newTrailed(r, samplePageSize, 31, anyExtension)
		data := f.lose(f.data)
		listed, _ := f.base()
		clear(data[int(listed[0])*samplePageSize:][:samplePageSize])
		r.tryOpen("pages of two flushes are missing", data)
	},
	"torn-root": func(r *errorRow) {
		s := newSample(r)
		s.setMetas(func(m *page.Meta) { m.Root = s.big })
		r.tryOpen("the root is a leaf of a bucket", s.data)
	},
	"copied-in-use": copiedInUse,
	"root-absurd": func(r *errorRow) {
		for _, root := range []page.ID{0, 1, newSample(r).meta.HighWater, math.MaxUint64} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.Root = root })
			r.tryOpen(fmt.Sprint(root), s.data)
		}
	},
	"freelist-absurd": func(r *errorRow) {
		for _, list := range []page.ID{0, 1, newSample(r).meta.HighWater, math.MaxUint64 - 1} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.Freelist = list })
			r.tryOpen(fmt.Sprint(list), s.data)
		}
	},
	"directory":           func(r *errorRow) { tryDirectory(r, holdfast.Options{}) },
	"directory-read-only": func(r *errorRow) { tryDirectory(r, holdfast.Options{ReadOnly: true}) },
	"missing-read-only": func(r *errorRow) {
		r.try("missing", nil, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, nil)
		})
	},
	"missing-directory": func(r *errorRow) {
		path := filepath.Join(r.TempDir(), "no", "such", "db")
		r.tryPath("missing", path, func(path string) error { return openUse(path, holdfast.Options{}, nil) })
	},
	"no-permission": tryNoPermission,
	"locked": func(r *errorRow) {
		tryLocked(r, "hold", holdfast.Options{})
		tryLocked(r, "hold", holdfast.Options{ReadOnly: true})
	},
	"locked-shared": func(r *errorRow) { tryLocked(r, "hold-shared", holdfast.Options{}) },
}

func tryDirectory(r *errorRow, options holdfast.Options) {
	if runtime.GOOS == "windows" {
		r.Skip("the error of opening a directory is another one there")
	}
	r.tryPath("directory", r.TempDir(), func(path string) error { return openUse(path, options, nil) })
}

// oneMetaTorn looks at each slot: the database opens with the other, and has
// two good metas again after it was closed.
func oneMetaTorn(r *errorRow) {
	for slot := range page.ID(2) {
		for _, bytesTorn := range []int{1, 40, samplePageSize} {
			s := newSample(r)
			for i := range bytesTorn {
				s.page(slot)[(page.HeaderSize+8+i)%samplePageSize] ^= 0x5A
			}
			name := fmt.Sprintf("slot %d, %d bytes", slot, bytesTorn)
			for _, preload := range []bool{false, true} {
				r.try(name+", read-only", s.data, func(path string) error {
					return openUse(path, holdfast.Options{ReadOnly: true, PreLoadFreelist: preload}, readEverything)
				})
			}
			path := filepath.Join(r.TempDir(), "db")
			must(r, os.WriteFile(path, s.data, 0o600))
			must(r, openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
				if err := readEverything(db); err != nil {
					return err
				}
				return db.Update(func(tx *holdfast.Tx) error {
					return tx.Bucket([]byte("small")).Put([]byte("new"), []byte("value"))
				})
			}))
			data := readFile(r, path)
			for i := range 2 {
				if _, err := page.DecodeMeta(data[i*samplePageSize:]); err != nil {
					r.Errorf("%s: slot %d after a commit: %v", name, i, err)
				}
			}
			must(r, openUse(path, holdfast.Options{}, useEverything))
		}
	}
}

// emptyDatabase is a new database of four pages of 4,096 bytes.
func emptyDatabase(t testing.TB) []byte {
	t.Helper()
	path := tempPath(t)
	must(t, openUse(path, holdfast.Options{PageSize: 4096}, func(*holdfast.DB) error { return nil }))
	return readFile(t, path)
}

// swapMeta turns every number of a meta to the other byte order, with the
// checksum that a machine of that order would have computed.
func swapMeta(b []byte) {
	for _, f := range []struct{ at, size int }{{0, 4}, {4, 4}, {8, 4}, {12, 4}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}} {
		for i := range f.size / 2 {
			j := f.at + f.size - 1 - i
			b[f.at+i], b[j] = b[j], b[f.at+i]
		}
	}
	binary.NativeEndian.PutUint64(b[56:], 0)
}

// tryLocked tries to open a file that another process has open.
func tryLocked(r *errorRow, role string, options holdfast.Options) {
	path := filepath.Join(r.TempDir(), "db")
	must(r, os.WriteFile(path, newSample(r).data, 0o600))
	release := startChild(r, os.Args[0], role, path)
	defer release()
	options.Timeout = 120 * time.Millisecond
	r.tryPath(role, path, func(path string) error {
		start := time.Now()
		err := openUse(path, options, nil)
		if waited := time.Since(start); waited < options.Timeout {
			return fmt.Errorf("gave up after %v already: %w", waited, err)
		}
		return err
	})
	release()
	options.Timeout = watchdog
	must(r, openUse(path, options, readEverything))
}

// startChild runs this test binary as another process and waits until it is
// ready; release ends it and can be called again.
func startChild(t testing.TB, binary, role, path string) (release func()) {
	t.Helper()
	cmd := exec.Command(binary, path)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		_ = in.Close()
		_ = cmd.Wait()
		t.Fatalf("the other process says %q, %v", line, err)
	}
	done := false
	return func() {
		if done {
			return
		}
		done = true
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	}
}

// copiedInUse has the second half of a file as of an earlier time than the first one.
func copiedInUse(r *errorRow) {
	path := filepath.Join(r.TempDir(), "original")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: samplePageSize, StrictCompat: true, NoFreelistSync: true})
	must(r, err)
	defer func() { must(r, db.Close()) }()
	c := &copyTest{t: r, states: map[string]bool{}}
	read := func() []byte {
		for n := range 60 {
			c.commit(db, n)
		}
		data, err := os.ReadFile(path)
		must(r, err)
		return data
	}
	moment, data := read(), read()
	half := len(moment) / 2 / samplePageSize * samplePageSize
	copy(data[half:], moment[half:])
	r.tryOpen("half of it earlier", data)
}
