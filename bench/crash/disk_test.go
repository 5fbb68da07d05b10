package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/vfs"
)

// disksAtOnce is the number of random disks made at one boundary.
const disksAtOnce = 3

// cut is called behind each write, growth and flush: there the power fails.
func (h *history) cut(kind vfs.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return
	}
	if kind == vfs.KindGrow {
		h.features["growth"] = true
	}
	var features []string
	for f, on := range h.features {
		if on {
			features = append(features, f)
		}
	}
	for disk := range h.disk.Disks(h.rng, h.page, disksAtOnce) {
		h.counts.add(features)
		if err := h.judge(disk); err != nil {
			h.fault = fmt.Errorf("power cut behind a %s (%v; page size %d): %w", kind, features, h.page, err)
			return
		}
		// bbolt knows nothing of pages below 1,024 bytes if a meta is torn, nor
		// of a creation that was cut short.
		if h.created && h.page >= 1024 && h.rng.IntN(4) == 0 {
			h.counts.add([]string{"opened by bbolt"})
			if err := h.judgeStock(disk); err != nil {
				h.fault = fmt.Errorf("opened by bbolt, power cut behind a %s (%v; page size %d): %w", kind, features, h.page, err)
				return
			}
		}
	}
	if kind == vfs.KindSync {
		h.features["rollback before"] = false
		h.features["growth"] = false
	}
}

// expected tells whether content is that of a state which a disk may hold now.
func (h *history) expected(content string) error {
	if content == h.acked || h.coming != "" && content == h.coming {
		return nil
	}
	return fmt.Errorf("the content is neither that of the last acknowledged commit nor of the one under way:\n%s\nacknowledged:\n%s\nunder way:\n%s", content, h.acked, h.coming)
}

// judge opens a disk with Holdfast.
func (h *history) judge(disk []byte) error {
	mem := vfs.NewCrash("disk.db", disk, nil)
	db, err := holdfast.OpenVFS(mem.Open(), &holdfast.Options{PageSize: h.page})
	if !h.created && (err == holdfast.ErrInvalid || err == holdfast.ErrChecksum) {
		return nil // garbage in the metas of a file that was never opened; nothing is lost
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = db.View(func(tx *holdfast.Tx) error {
		content, err := contentOf(tx)
		if err != nil {
			return err
		}
		var faults []error
		for fault := range tx.Check() {
			faults = append(faults, fault)
		}
		return errors.Join(append(faults, h.expected(content))...)
	})
	return errors.Join(err, db.Close())
}

// metaAssertion is what bbolt's check says of a file of which one meta page is
// torn: it opens such a file, but its check expects a header there.
var metaAssertion = regexp.MustCompile(`assertion failed: Page expected to be: [01], `)

// judgeStock opens a disk with bbolt.
func (h *history) judgeStock(disk []byte) error {
	path := filepath.Join(h.shm, "disk.db")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: h.page, NoSync: true, NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		content, err := contentOf(tx)
		if err != nil {
			return err
		}
		var faults []error
		for fault := range tx.Check() {
			if !metaAssertion.MatchString(fault.Error()) {
				faults = append(faults, fault)
			}
		}
		return errors.Join(append(faults, h.expected(content))...)
	})
	return errors.Join(err, db.Close(), os.Remove(path))
}
