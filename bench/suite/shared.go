package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast"
)

// Columns of a database that other processes read.
const (
	sharedNot     = "holdfast"
	sharedAlone   = "holdfast, shared"
	sharedReaders = "holdfast, shared, 8 readers"
	foreignCount  = 8
)

// What sharing may cost, and reading through an owner take.
const (
	sharedShare   = 0.01 // without a reader
	readersShare  = 0.02 // with eight
	sharedGetMost = 10 * time.Millisecond
	copyLeast     = 0.9 // of the rate of cp
	copyTailMost  = 2   // times the 99th percentile of commits without a copy
)

// SharedCost measures what it costs a program that other processes can read its database, and that eight do: each holds a state for
// a tenth of a second, and then the next one.
func SharedCost(c Config) (t Table, err error) {
	t = Table{Title: "A database that is shared with other processes, and one that is not", Columns: []string{sharedNot, sharedAlone, sharedReaders}, Peer: sharedNot, Ours: sharedReaders}
	var engines []Engine
	var paths [3]string
	for i, name := range t.Columns {
		engines = append(engines, Engine{name, func(path string, noSync bool) (Store, error) {
			o := &holdfast.Options{NoSync: noSync}
			if name != sharedNot {
				o.Share = shareOf(path)
			}
			paths[i] = path
			return openHoldfast(path, o)
		}})
	}
	for _, noSync := range []bool{true, false} {
		if err := c.sharedCommits(&t, engines, &paths, noSync); err != nil {
			return t, err
		}
	}
	return t, c.sharedViews(&t, engines, &paths)
}

// shareOf is the directory of the share of a database.
func shareOf(path string) string { return filepath.Join(filepath.Dir(path), "share") }

func (c *Config) sharedCommits(t *Table, engines []Engine, paths *[3]string, noSync bool) error {
	var s committers
	defer s.drop()
	if err := s.openEngines(c, engines, noSync); err != nil {
		return err
	}
	stop, err := foreignReaders(paths[2])
	if err != nil {
		return err
	}
	who, flush := "1 writer, `NoSync`", time.Duration(0)
	if !noSync {
		if flush, err = bareFlush(c.Dir); err != nil {
			return errors.Join(err, stop())
		}
		who = "1 writer, durable"
	}
	rates, err := c.committingSideBySide(t, who, &s, flush)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	t.ratioAtLeast(who+": commits, shared", sharedNot, rates[sharedAlone], rates[sharedNot], 1-sharedShare)
	t.ratioAtLeast(who+": commits, with 8 readers in another process", sharedNot, rates[sharedReaders], rates[sharedNot], 1-readersShare)
	return nil
}

func (c *Config) sharedViews(t *Table, engines []Engine, paths *[3]string) error {
	stores, drop, err := c.loaded(engines, c.Keys, true)
	defer drop()
	if err != nil {
		return err
	}
	stop, err := foreignReaders(paths[2])
	if err != nil {
		return err
	}
	keys := someKeys(c.Keys, 100_000, 2)
	samples := map[string][]sample{}
	err = t.compare(*c, "`View` and `Get`", engines, func(i int) (sample, error) {
		s, err := perOperation(c.Time, len(keys), func() error { return stores[i].ViewGets(keys) })
		samples[engines[i].Name] = append(samples[engines[i].Name], s)
		return s, err
	})
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	t.ratioAtMost("`View` and `Get`, shared", sharedNot, samples[sharedAlone], samples[sharedNot], 1+sharedShare)
	t.ratioAtMost("`View` and `Get`, with 8 readers in another process", sharedNot, samples[sharedReaders], samples[sharedNot], 1+readersShare)
	return nil
}

// SharedCopy measures a copy of a database that a program writes to, made by another process, beside cp, which copies the same
// bytes and no state of the database.
func SharedCopy(c Config) (t Table, err error) {
	const cp, hot, none, held = "cp", "holdfast, another process", "no copy", "no copy, a reader of its own"
	t = Table{Columns: []string{none, held, cp, hot}, Peer: cp, Ours: hot}
	path, err := c.path("shared-copy", "holdfast")
	if err != nil {
		return t, err
	}
	defer remove(path)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{Share: shareOf(path)})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c.logf("building a file of %s", FormatBytes(float64(c.Emptied)))
	keys, err := fillShared(db, c.Emptied)
	if err != nil {
		return t, err
	}
	size, err := sizeOf(path)
	if err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("Copying a file of %s while a program commits to it", FormatBytes(float64(size)))
	rate := Row{Workload: "copied", Unit: " MiB/s", More: true}
	tail := Row{Workload: "durable one-key commits meanwhile, 99th percentile", Unit: "ns"}
	copies := map[string]func(out string) error{
		none: func(string) error { time.Sleep(c.Time / 2); return nil },
		held: func(string) error { // whose pages are not used again
			return db.View(func(*holdfast.Tx) error { time.Sleep(c.Time / 2); return nil })
		},
		cp: func(out string) error {
			return exec.Command("cp", "--reflink=never", path, out).Run()
		},
		hot: func(out string) error { return runForeign("copy", path, out) },
	}
	tails := map[string][]sample{}
	var runners []runner
	for _, name := range t.Columns {
		runners = append(runners, runner{name, func() (sample, error) {
			out := path + ".copy"
			defer os.Remove(out)
			load := &traffic{db: db, bucket: bucketName, keys: keys, size: sharedValue}
			load.startWriter()
			time.Sleep(c.Time / 4)
			when, err := load.while(func() error { return copies[name](out) })
			if err = errors.Join(err, load.end()); err != nil {
				return sample{}, err
			}
			var l latencies
			l.gather(load, when)
			l.sort()
			tails[name] = append(tails[name], sample{float64(perMille(l.commits, 990)), -1})
			return sample{float64(size) / (1 << 20) / (when.to - when.from).Seconds(), -1}, nil
		}})
	}
	c.logf("measuring: copies")
	rates, err := byTurns(c.Rounds, runners)
	if err != nil {
		return t, err
	}
	rate.Cells, tail.Cells = cellsOf(rates), cellsOf(tails)
	delete(rate.Cells, none)
	delete(rate.Cells, held)
	t.Rows = append(t.Rows, rate, tail)
	t.ratioAtLeast("copy by another process", cp, rates[hot], rates[cp], copyLeast)
	t.ratioAtMost("commits during it, 99th percentile", "without a copy", tails[hot], tails[none], copyTailMost)
	return t, nil
}

// sharedValue is how many bytes a value of a file has that is copied.
const sharedValue = 1000

// fillShared writes so many bytes, and returns some keys.
func fillShared(db *holdfast.DB, bytes int64) (keys [][]byte, err error) {
	const batch = 10_000
	n := int(bytes / (sharedValue + 50))
	for from := 0; from < n; from += batch {
		err := db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			if err != nil {
				return err
			}
			for i := from; i < min(from+batch, n); i++ {
				key := fmt.Appendf(nil, "%012d", i)
				if i%97 == 0 {
					keys = append(keys, key)
				}
				at := i * 101 % (len(noise) - sharedValue)
				if err := b.Put(key, noise[at:at+sharedValue]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// SharedGet measures getting a key of a database that another process has open, in a process of its own each time.
func SharedGet(c Config) (t Table, err error) {
	const ours, command = "holdfast, another process", "command holdfast"
	t = Table{Columns: []string{ours}, Peer: ours, Ours: ours}
	path, err := c.path("shared-get", "holdfast")
	if err != nil {
		return t, err
	}
	defer remove(path)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{Share: shareOf(path)})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c.logf("building a file of %s", FormatBytes(float64(2*c.Emptied)))
	keys, err := fillShared(db, 2*c.Emptied)
	if err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("Getting a key of a file of %s that another process has open, from the start of a process to its end", FormatBytes(float64(2*c.Emptied)))
	runners := []runner{{ours, func() (sample, error) {
		return perOperation(c.Time, 1, func() error { return runForeign("get", path, string(keys[len(keys)/2])) })
	}}}
	if program := os.Getenv(commandVariable); program != "" {
		t.Columns = append(t.Columns, command)
		runners = append(runners, runner{command, func() (sample, error) {
			return perOperation(c.Time, 1, func() error {
				cmd := exec.Command(program, "get", path, string(bucketName), string(keys[len(keys)/2]))
				cmd.Env = append(os.Environ(), "HOLDFAST_SHARE="+shareOf(path))
				return cmd.Run()
			})
		}})
	}
	c.logf("measuring: get")
	samples, err := byTurns(c.Rounds, runners)
	if err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, Row{Workload: "get", Unit: "ns", Cells: cellsOf(samples)})
	for _, name := range t.Columns {
		took := cellOf(samples[name]).Median
		t.atMost("get of a key: "+name, FormatDuration(sharedGetMost), took, float64(sharedGetMost), FormatDuration(time.Duration(took)))
	}
	return t, nil
}

// commandVariable names the command holdfast that is measured too, if there is one.
const commandVariable = "HOLDFAST_COMMAND"

// foreignVariable gives a process of this program what it is to do with a database that another one has open: a word, the
// path and an argument, with line breaks between.
const foreignVariable = "HOLDFAST_BENCH_FOREIGN"

func foreignCommand(job ...string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), foreignVariable+"="+strings.Join(job, "\n"))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

func runForeign(job ...string) error {
	cmd, err := foreignCommand(job...)
	if err != nil {
		return err
	}
	return cmd.Run()
}

// foreignReaders starts readers in a process of their own, and returns what ends them.
func foreignReaders(path string) (stop func() error, err error) {
	cmd, err := foreignCommand("read", path, "")
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if err != nil || line != "reading\n" {
		return nil, fmt.Errorf("readers in another process said %q and ended: %w", line, errors.Join(err, stop()))
	}
	return stop, nil
}

// foreignChild is what such a process does.
func foreignChild(job string) error {
	parts := strings.SplitN(job, "\n", 3)
	if len(parts) != 3 {
		return fmt.Errorf("the job is %q", job)
	}
	what, path, argument := parts[0], parts[1], parts[2]
	db, err := holdfast.OpenShared(path, &holdfast.Options{Share: shareOf(path)})
	if err != nil {
		return err
	}
	switch what {
	case "get":
		err = db.View(func(tx *holdfast.Tx) error {
			if tx.Bucket(bucketName).Get([]byte(argument)) == nil {
				return errLostKey
			}
			return nil
		})
	case "copy":
		err = db.View(func(tx *holdfast.Tx) error { return tx.CopyFile(argument, 0o600) })
	case "read":
		err = readForeign(db)
	}
	return errors.Join(err, db.Close())
}

// readForeign holds states until standard input ends.
func readForeign(db *holdfast.DB) error {
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, foreignCount)
	hold := func() error {
		return db.View(func(tx *holdfast.Tx) error {
			tx.Cursor().First()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			return nil
		})
	}
	for range foreignCount {
		go func() {
			var err error
			for err == nil && ctx.Err() == nil {
				err = hold()
			}
			errs <- err
		}()
	}
	fmt.Println("reading")
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	for range foreignCount {
		err = errors.Join(err, <-errs)
	}
	return err
}
