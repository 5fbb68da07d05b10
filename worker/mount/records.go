package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdfast"
)

// records are what may outlive the process: see M6 in docs/worker/internals.md. Each is put before
// the thing and taken off after it.
type records struct {
	db *holdfast.DB
}

var (
	bucketRuns     = []byte("runs")     // name of a run -> runRecord
	bucketAttached = []byte("attached") // number, big-endian -> attachedRecord
	bucketUppers   = []byte("uppers")   // name of an overlay -> upperRecord
)

// recordVersion is the first byte of each value.
const recordVersion = 1

type runRecord struct {
	pid  uint64
	boot string
}

type attachedRecord struct {
	dev  uint64 // of the file system that is attached
	path string
}

type upperRecord struct {
	upper, work string
	dev         uint64 // the overlay's file system; 0: it was not mounted yet
}

func (r runRecord) encode() []byte {
	b := binary.AppendUvarint([]byte{recordVersion}, r.pid)
	return appendString(b, r.boot)
}

func (r attachedRecord) encode() []byte {
	b := binary.AppendUvarint([]byte{recordVersion}, r.dev)
	return appendString(b, r.path)
}

func (r upperRecord) encode() []byte {
	b := appendString(appendString([]byte{recordVersion}, r.upper), r.work)
	return binary.AppendUvarint(b, r.dev)
}

// decoder reads what encode has written; after an error everything is zero.
type decoder struct {
	rest []byte
	err  error
}

var errRecord = errors.New("a record that cannot be read")

func decode(b []byte) *decoder {
	if len(b) == 0 || b[0] != recordVersion {
		return &decoder{err: errRecord}
	}
	return &decoder{rest: b[1:]}
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.rest, d.err = nil, errRecord
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.rest, d.err = nil, errRecord
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = errRecord
	}
	return d.err
}

func decodeRun(b []byte) (r runRecord, err error) {
	d := decode(b)
	r.pid, r.boot = d.uvarint(), d.string()
	return r, d.end()
}

func decodeAttached(b []byte) (r attachedRecord, err error) {
	d := decode(b)
	r.dev, r.path = d.uvarint(), d.string()
	return r, d.end()
}

func decodeUpper(b []byte) (r upperRecord, err error) {
	d := decode(b)
	r.upper, r.work, r.dev = d.string(), d.string(), d.uvarint()
	return r, d.end()
}

const (
	recordsFile = "mounts.db"
	pidFile     = "pid"
)

// openRecords opens the records of a directory, which is the manager's lock on it. A file
// that is damaged is set aside, and damaged is why.
func openRecords(dir string) (r *records, damaged, err error) {
	path := filepath.Join(dir, recordsFile)
	r, err = tryRecords(path)
	switch {
	case errors.Is(err, holdfast.ErrTimeout):
		pid, _ := os.ReadFile(filepath.Join(dir, pidFile))
		return nil, nil, fmt.Errorf("mount: %s is in use by the process %s: %w", dir, strings.TrimSpace(string(pid)), ErrBusy)
	case err != nil && !isDamage(err):
		return nil, nil, fmt.Errorf("mount: opening records: %w", err)
	case err != nil:
		damaged = err
		if err = os.Rename(path, path+".damaged"); err != nil {
			return nil, nil, fmt.Errorf("mount: setting damaged records aside: %w (%w)", err, damaged)
		}
		if r, err = tryRecords(path); err != nil {
			return nil, nil, fmt.Errorf("mount: opening records: %w", err)
		}
	}
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(pid), 0o600); err != nil {
		_ = r.db.Close()
		return nil, nil, fmt.Errorf("mount: %w", err)
	}
	return r, damaged, nil
}

func isDamage(err error) bool {
	var corrupt *holdfast.CorruptError
	for _, is := range []error{errRecord, holdfast.ErrInvalid, holdfast.ErrChecksum, holdfast.ErrVersionMismatch} {
		if errors.Is(err, is) {
			return true
		}
	}
	return errors.As(err, &corrupt)
}

func tryRecords(path string) (*records, error) {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{
		Durability:  holdfast.None,
		Timeout:     2 * time.Second,
		SettleDelay: -1,
	})
	if err != nil {
		return nil, err
	}
	r := &records{db: db}
	err = db.Update(func(tx *holdfast.Tx) error {
		for _, name := range [][]byte{bucketRuns, bucketAttached, bucketUppers} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = r.readable()
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return r, nil
}

// readable reads every record once.
func (r *records) readable() error {
	_, err := r.all()
	return err
}

// kept is what an earlier run has left.
type kept struct {
	runs     map[string]runRecord
	attached map[uint64]attachedRecord
	uppers   map[string]upperRecord
}

func (r *records) all() (*kept, error) {
	k := &kept{runs: map[string]runRecord{}, attached: map[uint64]attachedRecord{}, uppers: map[string]upperRecord{}}
	err := r.db.View(func(tx *holdfast.Tx) error {
		err := tx.Bucket(bucketRuns).ForEach(func(key, value []byte) (err error) {
			k.runs[string(key)], err = decodeRun(value)
			return err
		})
		if err != nil {
			return fmt.Errorf("runs: %w", err)
		}
		err = tx.Bucket(bucketUppers).ForEach(func(key, value []byte) (err error) {
			k.uppers[string(key)], err = decodeUpper(value)
			return err
		})
		if err != nil {
			return fmt.Errorf("uppers: %w", err)
		}
		return tx.Bucket(bucketAttached).ForEach(func(key, value []byte) (err error) {
			if len(key) != 8 {
				return fmt.Errorf("attached: %w", errRecord)
			}
			k.attached[binary.BigEndian.Uint64(key)], err = decodeAttached(value)
			return err
		})
	})
	return k, err
}

func (r *records) put(bucket, key, value []byte) error {
	err := r.db.Update(func(tx *holdfast.Tx) error { return tx.Bucket(bucket).Put(key, value) })
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	return nil
}

func (r *records) drop(bucket, key []byte) error {
	err := r.db.Update(func(tx *holdfast.Tx) error { return tx.Bucket(bucket).Delete(key) })
	if err != nil {
		return fmt.Errorf("dropping a record: %w", err)
	}
	return nil
}

// forget drops records, in one transaction.
func (r *records) forget(k *kept) error {
	if len(k.runs)+len(k.attached)+len(k.uppers) == 0 {
		return nil
	}
	err := r.db.Update(func(tx *holdfast.Tx) error {
		for name := range k.runs {
			if err := tx.Bucket(bucketRuns).Delete([]byte(name)); err != nil {
				return err
			}
		}
		for n := range k.attached {
			if err := tx.Bucket(bucketAttached).Delete(number(n)); err != nil {
				return err
			}
		}
		for name := range k.uppers {
			if err := tx.Bucket(bucketUppers).Delete([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mount: dropping records: %w", err)
	}
	return nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (r *records) putRun(name string, rec runRecord) error {
	return r.put(bucketRuns, []byte(name), rec.encode())
}
func (r *records) dropRun(name string) error { return r.drop(bucketRuns, []byte(name)) }
func (r *records) putAttached(n uint64, rec attachedRecord) error {
	return r.put(bucketAttached, number(n), rec.encode())
}
func (r *records) dropAttached(n uint64) error { return r.drop(bucketAttached, number(n)) }
func (r *records) putUpper(name string, rec upperRecord) error {
	return r.put(bucketUppers, []byte(name), rec.encode())
}
func (r *records) dropUpper(name string) error { return r.drop(bucketUppers, []byte(name)) }
