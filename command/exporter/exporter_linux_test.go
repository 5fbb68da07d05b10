package exporter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"holdfast"
)

// asOwner in the environment makes the test binary a program that shares the database of that name in the directory after it.
const asOwner = "HOLDFAST_TEST_AS_OWNER"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(asOwner)); len(args) == 2 {
		if _, err := holdfast.Open(args[0], 0o600, &holdfast.Options{Share: args[1]}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exporter is a server that answers until the test ends.
type exporter struct {
	*collector
	address string
	said    *strings.Builder // what is said; to be read after end
	end     func() error
}

func start(t *testing.T, dir string, of limits) *exporter {
	t.Helper()
	l, err := listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	said := &strings.Builder{}
	x := &exporter{collector: newCollector(dir, log.New(said, "", 0)), address: l.Addr().String(), said: said}
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, x.collector, of) }()
	done := false
	x.end = func() error {
		if done {
			return nil
		}
		done = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { must(t, x.end()) })
	return x
}

// samples are what a scrape has, by names with their labels in order.
type samples map[string]*dto.Metric

func (x *exporter) scrape(t *testing.T) samples {
	t.Helper()
	answer, err := http.Get("http://" + x.address + "/metrics")
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	must(t, err)
	all := samples{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				if l.GetName() != "program" {
					key += " " + filepath.Base(l.GetValue())
				} else if l.GetValue() != filepath.Base(os.Args[0]) {
					t.Errorf("%s is of the program %q", name, l.GetValue())
				}
			}
			all[key] = m
		}
	}
	return all
}

func (s samples) value(t *testing.T, key string) float64 {
	t.Helper()
	m := s[key]
	switch {
	case m == nil:
		t.Fatalf("there is no %s", key)
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	t.Fatalf("%s is %v", key, m)
	return 0
}

// until scrapes until a figure, which programs show once a second, has a value.
func (x *exporter) until(t *testing.T, key string, want float64) samples {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s := x.scrape(t)
		if m := s[key]; m != nil && s.value(t, key) == want {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not become %v: %v", key, want, s[key])
		}
	}
}

// open opens a database, as containerd does.
func open(t *testing.T, path, dir string) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{Share: dir, NoStatistics: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// TestScrape: two databases, one of which is read by its program and by another, are shown as they are.
func TestScrape(t *testing.T) {
	files, dir := t.TempDir(), filepath.Join(t.TempDir(), "share")
	x := start(t, dir, usual)
	if s := x.scrape(t); len(s) != 1 || s.value(t, "holdfast_exporter_errors") != 0 {
		t.Fatal(s) // the directory is not there yet
	}
	a, b := open(t, filepath.Join(files, "a.db"), dir), open(t, filepath.Join(files, "b.db"), dir)
	for i := range 5 {
		must(t, a.Update(func(tx *holdfast.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("bucket"))
			if err != nil {
				return err
			}
			return bucket.Put([]byte{byte(i)}, make([]byte, 1000))
		}))
	}
	own, err := b.Begin(false)
	must(t, err)
	defer func() { must(t, own.Rollback()) }()
	other, err := holdfast.OpenShared(filepath.Join(files, "b.db"), &holdfast.Options{Share: dir})
	must(t, err)
	defer func() { must(t, other.Close()) }()
	reader, err := other.Begin(false)
	must(t, err)

	x.until(t, "holdfast_readers program b.db", 1)
	s := x.until(t, "holdfast_commits_total a.db", 5)
	for key, want := range map[string]float64{
		"holdfast_up a.db": 1, "holdfast_up b.db": 1, "holdfast_exporter_errors": 0,
		"holdfast_readers program a.db": 0, "holdfast_readers other a.db": 0, "holdfast_readers other b.db": 1,
		"holdfast_commits_total b.db": 0, "holdfast_page_size_bytes a.db": float64(a.Info().PageSize),
		"holdfast_vacuum_waiting reader a.db": 0, "holdfast_vacuum_runs_total a.db": 0,
		"holdfast_oldest_reader_age_seconds a.db": 0,
	} {
		if got := s.value(t, key); got != want {
			t.Errorf("%s is %v and not %v", key, got, want)
		}
	}
	if got := s.value(t, "holdfast_written_bytes_total a.db"); got < 5*1000 {
		t.Errorf("%v bytes are written", got)
	}
	if got := s.value(t, "holdfast_free_pages a.db") + s.value(t, "holdfast_pending_pages a.db"); got == 0 {
		t.Error("no pages are free")
	}
	h := s["holdfast_commit_duration_seconds a.db"].GetHistogram()
	if h.GetSampleCount() != 5 || h.GetSampleSum() <= 0 || len(h.GetBucket()) != len(holdfast.Histogram{}.Buckets) {
		t.Errorf("commits took %v", h)
	}
	must(t, reader.Rollback())
	x.until(t, "holdfast_readers other b.db", 0)
	if _, err := http.Get("http://" + x.address + "/"); err != nil {
		t.Error(err)
	}
}

// TestKilled: a program that was killed is shown to be down until it, or another, has the database open again.
func TestKilled(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "a.db"), t.TempDir()
	x := start(t, dir, usual)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asOwner+"="+path+" "+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatal(line, err)
	}
	x.until(t, "holdfast_up a.db", 1)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for range 2 {
		if s := x.scrape(t); len(s) != 2 || s.value(t, "holdfast_up a.db") != 0 || s.value(t, "holdfast_exporter_errors") != 0 {
			t.Error(s)
		}
	}
	db := open(t, path, dir)
	x.until(t, "holdfast_up a.db", 1)
	must(t, db.Close())
	if s := x.scrape(t); len(s) != 1 {
		t.Errorf("a database that was closed is shown: %v", s)
	}
}

// TestSlowClients: who sends a request in no time, or does not take the answer, keeps no others waiting, and is cut off.
func TestSlowClients(t *testing.T) {
	of := usual
	of.conns, of.read, of.write = 8, 200*time.Millisecond, 200*time.Millisecond
	x := start(t, t.TempDir(), of)
	var slow []net.Conn
	for _, request := range []string{"", "GET /met", "GET /metrics HTTP/1.1\r\nHost: x\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"} {
		conn, err := net.Dial("tcp", x.address)
		must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, request)
		must(t, err)
		slow = append(slow, conn)
	}
	x.scrape(t)
	for i, conn := range slow {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("slow client %d was not cut off", i)
		}
	}
}

// TestManyScrapes: what is too many at once is refused, and a scrape that takes its time does not keep the exporter from ending.
func TestManyScrapes(t *testing.T) {
	of := usual
	of.scrapes, of.end = 1, time.Millisecond
	x := start(t, t.TempDir(), of)
	x.mu.Lock()
	codes := make(chan int, 2)
	for range 2 {
		go func() {
			answer, err := http.Get("http://" + x.address + "/metrics")
			if err != nil {
				codes <- 0
				return
			}
			codes <- answer.StatusCode
			_ = answer.Body.Close()
		}()
	}
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("one too many is answered by %d", code)
	}
	if err := x.end(); err != nil {
		t.Error(err)
	}
	x.mu.Unlock()
	if code := <-codes; code != 0 {
		t.Errorf("the scrape that was cut off has %d", code)
	}
}
