package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast"
	"holdfast/worker/internal/damage"
)

// This file has what Open looks at before it opens the metadata, and what it reads from them.

// Keeper is a driver with files of its own in the directory of a store. They can be there before the
// store is, if making it was cut short.
type Keeper interface {
	// Keeps tells whether the driver makes an entry of this name in the directory of a store.
	Keeps(name string) bool
}

// CheckPlace is ErrNotStore, or ErrNoMetadata, if Open would refuse the directory root: there is something in it, and
// that is not a store. It changes nothing.
func CheckPlace(root string, driver Driver) error {
	if err := checkPlace(root, driver); err != nil {
		return fmt.Errorf("snapshot store %s: %w", root, err)
	}
	return nil
}

// rank is in which order entries are looked at.
func rank(e fs.DirEntry) int {
	if e.IsDir() && e.Name() == snapshotsDir {
		return 0
	}
	return 1
}

// contents is what metadata.db has in it.
type contents int

const (
	nothingYet   contents = iota // as before a store is made
	ofStore                      // a store
	ofOther                      // another program's
	notReadable                  // see the error
	mostOfBucket = len(bucketNames) / 2
)

// checkPlace refuses a directory whose entries the store would take for its own, delete and write over. An empty one is
// fit, a store, and what making a store leaves that is cut short.
func checkPlace(root string, driver Driver) error {
	metadata := filepath.Join(root, metadataName)
	has, err := look(metadata)
	switch has {
	case ofStore:
		return nil
	case ofOther:
		return fmt.Errorf("%w: %s is a database of another program", ErrNotStore, metadata)
	}
	entries, listErr := os.ReadDir(root)
	if errors.Is(listErr, fs.ErrNotExist) {
		return nil
	}
	if listErr != nil {
		return listErr
	}
	locked := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockName })
	if has == notReadable && !locked { // making a store begins with the lock
		return err
	}
	// What is said of a directory with snapshots says more than what is said of others.
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(rank(a), rank(b)) })
	for _, e := range entries {
		fit, strange := fits(root, e, driver)
		switch {
		case strange != nil:
			return strange
		case fit:
		case has == notReadable:
			return err // there is a store, or was
		case rank(e) == 0:
			return fmt.Errorf("%w: restore it from a backup, or move the directory %s away to begin anew", ErrNoMetadata, filepath.Join(root, snapshotsDir))
		default:
			return fmt.Errorf("%w, and not empty: there is %s", ErrNotStore, filepath.Join(root, e.Name()))
		}
	}
	return nil
}

// look reads whose metadata are at path.
func look(path string) (has contents, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nothingYet, nil
	case err != nil:
		return notReadable, err
	case info.Size() == 0 && info.Mode().IsRegular():
		return nothingYet, nil
	}
	db, err := holdfast.Open(path, 0, &holdfast.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return notReadable, unreadable(path, err)
	}
	defer db.Close()
	err = db.View(func(tx *holdfast.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil {
			return nil
		}
		has = ofOther
		// A store of an older version lacks some, and a damaged one any.
		there := 0
		for _, name := range bucketNames {
			if tx.Bucket([]byte(name)) != nil {
				there++
			}
		}
		if there > mostOfBucket {
			has = ofStore
		}
		return nil
	})
	if err != nil {
		return notReadable, unreadable(path, err)
	}
	return has, nil
}

// unreadable is an error of opening the metadata with the file's name, and ErrCorrupt if that is damaged.
func unreadable(path string, err error) error {
	damaged := damage.Is(err)
	if !strings.Contains(err.Error(), path) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if damaged {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// fits tells whether an entry is one that making a store can leave.
func fits(root string, e fs.DirEntry, driver Driver) (bool, error) {
	path := filepath.Join(root, e.Name())
	if e.Type()&fs.ModeSocket != 0 { // systemd makes the sockets of a daemon before that makes the store
		return true, nil
	}
	switch name := e.Name(); name {
	case metadataName:
		return true, nil
	case lockName:
		if !e.Type().IsRegular() {
			return false, nil
		}
		b, err := os.ReadFile(path)
		return strings.Trim(string(b), "0123456789\n") == "", err
	case snapshotsDir, newDir, trashDir, quarantineName:
		if !e.IsDir() {
			return false, nil
		}
		inside, err := os.ReadDir(path)
		return len(inside) == 0, err
	case "lost+found": // of the root of a file system
		return e.IsDir(), nil
	default:
		k, ok := driver.(Keeper)
		return ok && k.Keeps(name), nil
	}
}

// guardNew refuses a root with snapshots and new metadata: all of them would be orphans.
func (s *Store) guardNew() error {
	dir, err := os.Open(filepath.Join(s.root, snapshotsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if names, _ := dir.Readdirnames(1); len(names) > 0 {
		return fmt.Errorf("%w: restore it from a backup, or move the directory %s away to begin anew", ErrNoMetadata, dir.Name())
	}
	return nil
}

// load makes or reads what the metadata say of the whole store.
func (s *Store) load() error {
	boot, err := bootID()
	if err != nil && s.opts.Sync == SyncDeferred {
		return fmt.Errorf("SyncDeferred: %w", err)
	}
	if t := testBootID.Load(); t != nil {
		boot = *t
	}
	return s.update("open", func(t *txn) error {
		if t.tx.Bucket([]byte(bucketNames[inMeta])) == nil {
			if err := s.guardNew(); err != nil { // the file may have been emptied
				return err
			}
			if err := t.create(); err != nil {
				return err
			}
		}
		if err := t.checkStore(); err != nil {
			return err
		}
		if err := t.addBuckets(); err != nil {
			return err
		}
		if err := t.loadLists(); err != nil {
			return err
		}
		return t.loadSync(boot)
	})
}

// create makes the buckets of a new store.
func (t *txn) create() error {
	for _, name := range bucketNames {
		if _, err := t.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return t.put(inMeta, keyStore, appendString([]byte{storeVersion}, t.store.driver.Name()))
}

// addBuckets makes those that a store of an older version lacks.
func (t *txn) addBuckets() error {
	for _, n := range []bucket{inVerified, inUnmeasured} {
		if _, err := t.tx.CreateBucketIfNotExists([]byte(bucketNames[n])); err != nil {
			return err
		}
	}
	return nil
}

// checkStore verifies version and driver.
func (t *txn) checkStore() error {
	v, err := t.get(inMeta, keyStore)
	if err != nil {
		return err
	}
	d := decoder{rest: v}
	version, driver := d.byte(), d.string()
	if version != storeVersion && len(v) > 0 {
		return fmt.Errorf("%w: a snapshot store of version %d; this program knows version %d", ErrUnsupported, version, storeVersion)
	}
	if err := d.end(); err != nil {
		return corruptf("description of the store: %v", err)
	}
	if want := t.store.driver.Name(); driver != want {
		return fmt.Errorf("%w: it was made with driver %s, and is opened with %s", ErrOtherDriver, driver, want)
	}
	return nil
}

// loadLists reads what is kept in memory: next ID, clients, distrusted commits.
func (t *txn) loadLists() error {
	s := t.store
	s.distrust = nil // it may be the second attempt
	v, err := t.get(inMeta, keyIDs)
	if err != nil {
		return err
	}
	s.ids.next, s.ids.limit = 1, 1
	if v != nil {
		n, _, err := fixed("next ID", v, 1)
		if err == nil && n > maxID {
			err = corruptf("next ID: %d", n)
		}
		if err != nil {
			return err
		}
		s.ids.next, s.ids.limit = max(ID(n), 1), max(ID(n), 1)
	}
	if v, err = t.get(inMeta, keySuspect); err != nil {
		return err
	}
	if v != nil {
		n, _, err := fixed("suspect ID", v, 1)
		if err != nil {
			return err
		}
		s.suspect = ID(n)
	}
	err = t.scan(inNamespaces, nil, nil, func(k, v []byte) (bool, error) {
		client, err := parseNamespace(v)
		s.clients[string(k)] = client
		return true, err
	})
	if err != nil {
		return err
	}
	return t.scan(inDistrusted, nil, nil, func(k, v []byte) (bool, error) {
		last, _, err := fixed("distrusted commits", k, 1)
		if err != nil {
			return false, err
		}
		first, _, err := fixed("distrusted commits", v, 1)
		s.distrust = append(s.distrust, commitRange{first, last})
		return true, err
	})
}

// loadSync finds out whether the machine went down before all was flushed.
func (t *txn) loadSync(boot string) error {
	v, err := t.get(inMeta, keySync)
	if err != nil {
		return err
	}
	st, err := parseSyncState(v)
	if err != nil {
		return err
	}
	if st.boot == boot && boot != "" {
		return nil
	}
	if st.commit > st.synced {
		lost := commitRange{st.synced + 1, st.commit}
		t.store.distrust = append(t.store.distrust, lost)
		t.store.log.Warn("the machine went down before the content of these commits was on the disk",
			"first", lost.first, "last", lost.last)
		if err := t.put(inDistrusted, number(lost.last), number(lost.first)); err != nil {
			return err
		}
		st.synced = st.commit
	}
	st.boot = boot
	return t.put(inMeta, keySync, st.append(nil))
}
