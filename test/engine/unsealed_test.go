package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
)

// GetUnsealed returns a damaged value as it is, for its caller verifies it; a later Get reports
// the damage.
func TestGetUnsealed(t *testing.T) {
	data := longFile(t)
	damaged := slices.Clone(data)
	at := (int(longRun(t, data, 'E').Start) + 500) * 512
	damaged[at] ^= 1
	other, key := []byte("other"), []byte("e")

	db, _ := openSealed(t, damaged, nil)
	err := db.View(func(tx *holdfast.Tx) error {
		b := tx.Bucket(other)
		looked := db.Stats().SealsVerified
		for range 2 {
			v, err := bridge.GetUnsealed(b, key, 0)
			if err != nil || len(v) == 0 || v[0] != 'E' || bytes.Count(v[1:], []byte("x")) != len(v)-2 {
				t.Errorf("%d bytes, %v", len(v), err)
			}
		}
		if n := db.Stats().SealsVerified - looked; n > 1 { // that of the branch
			t.Errorf("%d seals were looked at", n)
		}
		if err := tx.Err(); err != nil {
			t.Error(err)
		}
		if b.Get(key) != nil {
			t.Error("Get gives the damaged value")
		}
		return nil
	})
	if !isWrongSeal(err) {
		t.Error(err)
	}
	if err := db.Update(func(tx *holdfast.Tx) error {
		_, err := bridge.GetUnsealed(tx.Bucket(other), key, 0)
		return err
	}); !isWrongSeal(err) {
		t.Errorf("in a writing transaction: %v", err)
	}

	db, _ = openSealed(t, data, nil)
	get := func(tx *holdfast.Tx) { tx.Bucket(other).Get(key) }
	unsealed := func(tx *holdfast.Tx) {
		for name, want := range map[string]string{"f": "small", "g": "", "": ""} {
			if v, err := bridge.GetUnsealed(tx.Bucket(other), []byte(name), 0); string(v) != want || err != nil {
				t.Errorf("%q: %q %v", name, v, err)
			}
		}
		if v, err := bridge.GetUnsealed(tx.Bucket([]byte("b")), []byte("in"), 0); v != nil || err != nil {
			t.Errorf("a bucket: %q %v", v, err)
		}
		if v, err := bridge.GetUnsealed(tx.Bucket(other), key, 0); err != nil || !bytes.Equal(v, tx.Bucket(other).Get(key)) {
			t.Errorf("%d bytes, %v", len(v), err)
		}
	}
	passes(db, func(tx *holdfast.Tx) { _, _ = bridge.GetUnsealed(tx.Bucket(other), key, 0) })
	if n := passes(db, get); n != 1 {
		t.Errorf("after GetUnsealed, Get looks at %d seals", n)
	}
	must(t, db.View(func(tx *holdfast.Tx) error { unsealed(tx); return nil }))
	must(t, db.Update(func(tx *holdfast.Tx) error { unsealed(tx); return nil }))
}

// GetUnsealed checks all but the seal, and leaves the transaction as it was.
func TestGetUnsealedDamage(t *testing.T) {
	data := longFile(t)
	long := int(longRun(t, data, 'E').Start) * 512
	small := bytes.Index(data, []byte("fsmall"))
	for what, c := range map[string]struct {
		key    string
		change func(p []byte)
	}{
		"number of the page":   {"e", func(p []byte) { p[long]++ }},
		"type of the page":     {"e", func(p []byte) { p[long+8] = 0x40 }},
		"count of the page":    {"e", func(p []byte) { p[long+11] = 0xff; p[long+10] = 0xff }},
		"overflow of the page": {"e", func(p []byte) { p[long+15] = 0x7f }},
		"length of the value":  {"e", func(p []byte) { p[long+16+15] = 0x7f }},
		"seal of a short page": {"f", func(p []byte) { p[small] ^= 1 }},
	} {
		damaged := slices.Clone(data)
		c.change(damaged)
		db, _ := openSealed(t, damaged, &holdfast.Options{ReadOnly: true})
		must(t, db.View(func(tx *holdfast.Tx) error {
			v, err := bridge.GetUnsealed(tx.Bucket([]byte("other")), []byte(c.key), 0)
			var damage *holdfast.CorruptError
			if v != nil || !errors.As(err, &damage) || damage.Page < 2 {
				t.Errorf("%s: %d bytes, %v", what, len(v), err)
			}
			return nil
		}))
	}
	db, _ := openSealed(t, data, nil)
	tx, err := db.Begin(false)
	must(t, err)
	b := tx.Bucket([]byte("other"))
	v, err := bridge.GetUnsealed(b, []byte("e"), 0)
	must(t, err)
	for _, ahead := range []int{-1 << 31, -1, 0, 1, 1 << 20, 1<<31 - 1} {
		for _, p := range [][]byte{v, v[:1], v[len(v)-1:], nil, make([]byte, 100)} {
			bridge.Prefetch(tx, p, ahead)
		}
	}
	must(t, tx.Rollback())
	if _, err := bridge.GetUnsealed(b, []byte("e"), 0); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
	bridge.Prefetch(tx, []byte("anything"), 0)
}
