package zfs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/snapshot"
)

// A store has an identity. It is in the file ROOT/zfs, before the name of the dataset, and in a property of the
// dataset: two stores in one dataset would destroy each other's content.
const (
	claimName = "zfs"
	lockName  = "zfs.lock"
	property  = "holdfast:store"
)

// Keeps reports whether a name in the Store's directory is that of the claim or of the lock.
func (*Driver) Keeps(name string) bool {
	return slices.Contains([]string{claimName, claimName + ".new", lockName}, name)
}

// Probe looks for the program and the dataset, and whether it can be the Store's. It changes nothing.
func (d *Driver) Probe(root string) error {
	ctx := context.Background()
	if err := d.locate(ctx, root); err != nil {
		return err
	}
	_, err := d.compare(ctx)
	return err
}

// found is what there is of a Store.
type found struct {
	claim string // the identity that the Store has; "": none
	owner string // the one that the dataset has
	there bool   // the dataset exists
}

// locate finds the program, and sees whether the names can be used.
func (d *Driver) locate(ctx context.Context, root string) (err error) {
	if !pattern.MatchString(d.dataset) || len(d.dataset) > maxDataset {
		return fmt.Errorf("the dataset %q: it needs a name such as tank/holdfast, of up to %d bytes: %w", d.dataset, maxDataset, snapshot.ErrInvalid)
	}
	if d.root, err = filepath.Abs(root); err != nil {
		return err
	}
	// A command of a killed process may still run.
	lock := filepath.Join(d.root, lockName)
	if _, err := os.Stat(lock); err == nil {
		if err := awaitCommands(ctx, lock); err != nil {
			return err
		}
	}
	d.zfs, err = findProgram(ctx)
	return err
}

// compare looks at both sides of the claim.
func (d *Driver) compare(ctx context.Context) (found, error) {
	var f found
	var err error
	if f.claim, err = d.readClaim(); err != nil {
		return f, err
	}
	f.owner, err = d.zfs.property(ctx, property, d.dataset)
	f.there = err == nil
	if err != nil && !errors.Is(err, errGone) {
		return f, err
	}
	switch {
	case f.claim != "" && !f.there:
		return f, fmt.Errorf("the dataset %s, which has the content of this store, is not there; is its pool imported? %w", d.dataset, err)
	case f.claim != f.owner && f.claim != "":
		return f, fmt.Errorf("the dataset %s is not this store's: it has %s=%q, and %s has %q: %w",
			d.dataset, property, f.owner, d.claimPath(), f.claim, snapshot.ErrInvalid)
	case f.there && f.owner == "":
		return f, fmt.Errorf("the dataset %s is there and was not made for a store; name one that is not there: %w", d.dataset, snapshot.ErrInvalid)
	case f.there && f.claim == "":
		// It is another store's, unless the process ended after it had made the dataset and before it wrote the claim.
		list, err := d.zfs.run(ctx, "list", "-H", "-o", "name", "-r", d.dataset)
		if err == nil && list != d.dataset {
			err = fmt.Errorf("the dataset %s has the content of another store, %s: %w", d.dataset, f.owner, snapshot.ErrInvalid)
		}
		return f, err
	case !f.there:
		pool, _, _ := strings.Cut(d.dataset, "/")
		if _, err := d.zfs.run(ctx, "list", "-H", "-o", "name", pool); err != nil {
			return f, fmt.Errorf("the pool %s: %w", pool, err)
		}
	}
	return f, nil
}

// Start makes the dataset.
func (d *Driver) Start(ctx context.Context, root string) error {
	if err := d.locate(ctx, root); err != nil {
		return err
	}
	d.zfs.lock = filepath.Join(d.root, lockName)
	if err := awaitCommands(ctx, d.zfs.lock); err != nil {
		return err
	}
	f, err := d.compare(ctx)
	if err != nil {
		return err
	}
	if !f.there {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		f.owner = hex.EncodeToString(random)
		_, err := d.zfs.run(ctx, "create", "-o", "canmount=off", "-o", "mountpoint=legacy", "-o", property+"="+f.owner, d.dataset)
		if err != nil {
			return err
		}
	}
	if f.claim == "" {
		if err := d.writeClaim(f.owner); err != nil {
			return err
		}
	}
	at, err := d.zfs.property(ctx, "mountpoint", d.dataset)
	if err == nil && at != "legacy" { // it was changed since
		_, err = d.zfs.run(ctx, "set", "mountpoint=legacy", d.dataset)
	}
	return err
}

func (d *Driver) claimPath() string { return filepath.Join(d.root, claimName) }

func (d *Driver) readClaim() (string, error) {
	id, dataset, err := readClaim(d.claimPath())
	if err == nil && id != "" && dataset != d.dataset {
		err = fmt.Errorf("the content of this store is in the dataset %q, as %s says, not in %s: %w", dataset, d.claimPath(), d.dataset, snapshot.ErrInvalid)
	}
	return id, err
}

// DatasetOf returns the dataset of the store in the directory root, for New; "" if it has none.
func DatasetOf(root string) (string, error) {
	_, dataset, err := readClaim(filepath.Join(root, claimName))
	return dataset, err
}

func readClaim(path string) (id, dataset string, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	fields := strings.Fields(string(b))
	if len(fields) != 2 {
		return "", "", fmt.Errorf("%s: %q is not an identity and a dataset: %w", path, b, snapshot.ErrCorrupt)
	}
	return fields[0], fields[1], nil
}

func (d *Driver) writeClaim(id string) error {
	next := d.claimPath() + ".new"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%s %s\n", id, d.dataset), 0o600); err != nil {
		return err
	}
	if err := fstree.Flush(next); err != nil {
		return err
	}
	if err := os.Rename(next, d.claimPath()); err != nil {
		return err
	}
	return fstree.Flush(d.root)
}

var _ snapshot.Starter = (*Driver)(nil)
