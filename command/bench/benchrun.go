package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"holdfast"
	"holdfast/command/cli"
)

// benchReport is what was measured, in JSON.
type benchReport struct {
	File        string          `json:"file"`
	Kept        bool            `json:"kept"`
	WriteMode   string          `json:"write_mode"`
	ReadMode    string          `json:"read_mode"`
	BatchSize   int64           `json:"batch_size"`
	KeyBytes    int             `json:"key_bytes"`
	ValueBytes  int             `json:"value_bytes"`
	PageSize    int             `json:"page_size_bytes"`
	FillPercent float64         `json:"fill_percent"`
	NoSync      bool            `json:"no_sync"`
	Write       benchResultJSON `json:"write"`
	Read        benchResultJSON `json:"read"`
}

type benchResultJSON struct {
	Operations int64   `json:"operations"`
	Duration   int64   `json:"duration_ns"`
	Each       float64 `json:"ns_per_operation"`
	PerSecond  int64   `json:"operations_per_second"`
}

func (b *benchmark) report(path string) benchReport {
	result := func(r benchResult) benchResultJSON {
		return benchResultJSON{r.ops, r.took.Nanoseconds(), float64(r.took.Nanoseconds()) / float64(max(r.ops, 1)), r.perSecond()}
	}
	return benchReport{
		File: path, Kept: b.work, WriteMode: b.writeMode, ReadMode: b.readMode, BatchSize: b.batchSize,
		KeyBytes: b.keySize, ValueBytes: b.valueSize, PageSize: b.pageSize, FillPercent: b.fill, NoSync: b.noSync,
		Write: result(b.wrote), Read: result(b.read),
	}
}

// benchKey is a key with the nested bucket that it is in, nil if it is in none.
type benchKey struct{ bucket, key []byte }

var benchBucket = []byte("bench")

func (b *benchmark) nested() bool    { return strings.HasSuffix(b.writeMode, "-nest") }
func (b *benchmark) ascending() bool { return strings.HasPrefix(b.writeMode, "seq") }

// run measures writing and reading, and leaves the results in b.
func (b *benchmark) run(path string) (err error) {
	options := *holdfast.DefaultOptions
	options.Timeout, options.PageSize, options.InitialMmapSize, options.NoSync = b.Timeout, b.pageSize, b.mmapSize, b.noSync
	db, err := holdfast.Open(path, 0o600, &options)
	if err != nil {
		b.mine = b.mine && !errors.Is(err, holdfast.ErrTimeout) // then another process has it open
		return err
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	err = db.View(isUnused)
	if b.mine = err == nil; errors.Is(err, fs.ErrExist) { // it came there between a look at the file and its lock
		err = benchExists(path)
	}
	if err != nil {
		return err
	}
	b.random = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	defer b.profiler.end()
	for _, phase := range []struct {
		name, mode string
		result     *benchResult
		run        func(*holdfast.DB) error
	}{
		{"write", "w", &b.wrote, b.write},
		{"read", "r", &b.read, func(db *holdfast.DB) error { return db.View(b.readAll) }},
	} {
		b.say("starting %s benchmark.", phase.name)
		if err := b.phase(db, phase.name, phase.mode, phase.result, phase.run); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return b.profiler.save()
}

// isUnused is fs.ErrExist if the database holds anything.
func isUnused(tx *holdfast.Tx) error {
	if name, _ := tx.Cursor().First(); name != nil {
		return fs.ErrExist
	}
	return tx.Err()
}

// phase measures one of them, and profiles it if mode is among those to profile.
func (b *benchmark) phase(db *holdfast.DB, name, mode string, result *benchResult, run func(*holdfast.DB) error) error {
	if b.profileMode == mode || b.profileMode == "rw" && mode == "w" {
		if err := b.profiler.begin(); err != nil {
			return err
		}
	}
	stop := b.Progress(name, 0, nil)
	b.ops, b.lastOps, b.lastTick = 0, 0, time.Now()
	start := time.Now()
	err := run(db)
	*result = benchResult{b.ops, time.Since(start)}
	stop()
	if err == nil && (b.profileMode == mode || b.profileMode == "rw" && mode == "r") {
		err = b.profiler.end()
	}
	return err
}

// next is the number that the next key, or nested bucket, is.
func (b *benchmark) next() []byte {
	n := b.random.Uint32()
	if b.ascending() {
		b.last++
		n = b.last
	}
	key := make([]byte, b.keySize)
	binary.BigEndian.PutUint32(key, n)
	return key
}

// write writes all keys.
func (b *benchmark) write(db *holdfast.DB) error {
	value := make([]byte, b.valueSize)
	for i := int64(0); i < b.count; i += b.batchSize {
		err := db.Update(func(tx *holdfast.Tx) error {
			in, name, err := b.target(tx)
			if err != nil {
				return err
			}
			b.say("Starting write iteration %d", i)
			for range b.batchSize {
				key := b.next()
				if err := in.Put(key, value); err != nil {
					return err
				}
				if b.readMode == "rnd" {
					b.keys = append(b.keys, benchKey{name, key})
				}
				if err := b.done(1); err != nil {
					return err
				}
			}
			b.say("Finished write iteration %d", i)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// target is the bucket that a transaction writes to, with its name if it is nested.
func (b *benchmark) target(tx *holdfast.Tx) (in *holdfast.Bucket, name []byte, err error) {
	if in, err = tx.CreateBucketIfNotExists(benchBucket); err != nil {
		return nil, nil, err
	}
	in.FillPercent = b.fill
	if !b.nested() {
		return in, nil, nil
	}
	name = b.next()
	if in, err = in.CreateBucketIfNotExists(name); err != nil {
		return nil, nil, err
	}
	in.FillPercent = b.fill
	return in, name, nil
}

// readAll reads all keys, again and again until the time is up.
func (b *benchmark) readAll(tx *holdfast.Tx) error {
	b.random.Shuffle(len(b.keys), func(i, j int) { b.keys[i], b.keys[j] = b.keys[j], b.keys[i] })
	start := time.Now()
	for {
		before := b.ops
		if err := b.readOnce(tx); err != nil {
			return err
		}
		if n := b.ops - before; b.ascending() && n != b.count {
			return fmt.Errorf("iter mismatch: expected %d, got %d", b.count, n)
		}
		if err := b.ctx.Err(); err != nil || time.Since(start) >= b.time {
			return err
		}
	}
}

func (b *benchmark) readOnce(tx *holdfast.Tx) error {
	top := tx.Bucket(benchBucket)
	if top == nil {
		return cli.ErrNoBucket
	}
	if b.readMode == "rnd" {
		return b.readShuffled(top)
	}
	if !b.nested() {
		return b.scan(top)
	}
	return top.ForEachBucket(func(name []byte) error {
		if in := top.Bucket(name); in != nil {
			return b.scan(in)
		}
		return cli.ErrNoBucket
	})
}

// scan reads the keys of a bucket in their order.
func (b *benchmark) scan(in *holdfast.Bucket) error {
	c := in.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v == nil {
			return cli.ErrNoKey
		}
		if err := b.done(1); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchmark) readShuffled(top *holdfast.Bucket) error {
	for _, key := range b.keys {
		in := top
		if key.bucket != nil {
			in = top.Bucket(key.bucket)
		}
		if in == nil || in.Get(key.key) == nil {
			return cli.ErrNoKey
		}
		if err := b.done(1); err != nil {
			return err
		}
	}
	return nil
}
