package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// shareName is the name of a share's file, see Identity.
var shareName = regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+$`)

// looked is how many files of a directory are looked at for dead owners, at most.
const looked = 64

// removeDead removes what owners of other databases left that were killed: of a database that is opened again the
// next owner replaces it, but some are not. A file that stays does no harm.
func removeDead(dir, own string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries[:min(len(entries), looked)] {
		if path := filepath.Join(dir, entry.Name()); path != own && shareName.MatchString(entry.Name()) && isDead(path) {
			removeIfDead(path)
		}
	}
}

// isDead tells whether a file is a share of this machine, since it was booted, without an owner. It has its name only when its
// owner has the lock.
func isDead(path string) bool {
	file, err := openFile(path, 0, nil)
	if err != nil {
		return false
	}
	var head [headWords * 8]byte
	_, err = file.ReadAt(head[:], 0)
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(head[i*8:]) }
	boot, unknown := bootID()
	locked, failed := file.ByteLocked(ownerByte)
	err = errors.Join(err, unknown, failed, file.Close())
	return err == nil && word(wordMagic) == magic && [2]uint64{word(wordBoot), word(wordBoot + 1)} == boot && !locked
}

// judged is called, in tests, when removeIfDead has decided.
var judged = func() {}

// removeIfDead removes a dead share. Its database may get an owner meanwhile, whose share has the same name: so it is moved away first,
// and moved back if it lives. The name that it gets is used once: under one that others use too it could be the share of the
// next owner, moved there since it was looked at.
func removeIfDead(path string) {
	away := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x.dead", filepath.Base(path), newNonce()))
	if os.Rename(path, away) != nil {
		return
	}
	dead := isDead(away)
	judged()
	if !dead {
		if err := os.Link(away, path); err != nil && !errors.Is(err, os.ErrExist) { // there is no newer one
			_ = os.Rename(away, path) // a file system without links
			return
		}
	}
	_ = os.Remove(away)
}
