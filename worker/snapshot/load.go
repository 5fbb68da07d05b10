package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

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
		if err := t.addVerified(); err != nil {
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
	err = t.scan(inTenants, nil, nil, func(k, v []byte) (bool, error) {
		client, err := parseTenant(v)
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
