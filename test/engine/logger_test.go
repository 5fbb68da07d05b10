package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"holdfast"
)

// memoryLogger keeps what it is told.
type memoryLogger struct {
	holdfast.Logger
	mu    sync.Mutex
	lines []string
}

func (l *memoryLogger) add(level, format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, level+": "+fmt.Sprintf(format, v...))
}

func (l *memoryLogger) Debugf(format string, v ...any)   { l.add("debug", format, v...) }
func (l *memoryLogger) Infof(format string, v ...any)    { l.add("info", format, v...) }
func (l *memoryLogger) Warningf(format string, v ...any) { l.add("warning", format, v...) }
func (l *memoryLogger) Errorf(format string, v ...any)   { l.add("error", format, v...) }

func (l *memoryLogger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *memoryLogger) has(t testing.TB, pattern string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	re := regexp.MustCompile(pattern)
	for _, line := range l.lines {
		if re.MatchString(line) {
			return
		}
	}
	t.Errorf("no message like %s among %q", pattern, l.lines)
}

// The logger given to Open hears of opening, of changes and of failures.
func TestLoggerReceives(t *testing.T) {
	path := tempPath(t)
	l := &memoryLogger{}
	db := open(t, path, &holdfast.Options{Logger: l})
	if db.Logger() != l {
		t.Error("Logger gives another one")
	}
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		put(t, b, "k", "v")
		must(t, b.Delete([]byte("k")))
		_ = b.Put(nil, nil)
		_, _ = tx.CreateBucket([]byte("b"))
		createBucket(t, b, "in")
		must(t, tx.MoveBucket([]byte("in"), b, nil))
		must(t, tx.DeleteBucket([]byte("in")))
	})
	must(t, db.Close())
	for _, pattern := range []string{
		`^info: Opening db file \(` + regexp.QuoteMeta(path) + `\) with options: \{`,
		`^info: Opening db file .* successfully`,
		`^debug: Creating bucket "b" successfully`,
		`^debug: Putting key "k" successfully`,
		`^debug: Deleting key "k" successfully`,
		`^debug: Moving bucket "in" successfully`,
		`^debug: Deleting bucket "in" successfully`,
		`^error: Putting key "" failed: key required`,
		`^error: Creating bucket "b" failed: bucket already exists`,
	} {
		l.has(t, pattern)
	}
	must(t, os.WriteFile(path, []byte("text"), 0o600))
	if _, err := holdfast.Open(path, 0o600, &holdfast.Options{Logger: l}); err == nil {
		t.Error("opened a text")
	}
	l.has(t, `^error: Opening db file .* failed: invalid database`)
}

// Without a logger there is one that drops everything, also of no database.
func TestNoLogger(t *testing.T) {
	var none *holdfast.DB
	none.Logger().Error("dropped")
	openNew(t, 0).Logger().Debug("dropped")
}

// DefaultLogger writes each message with its level and the line of its caller;
// debug messages only when asked for.
func TestDefaultLogger(t *testing.T) {
	var buf bytes.Buffer
	l := &holdfast.DefaultLogger{Logger: log.New(&buf, "", log.Lshortfile)}
	var logger holdfast.Logger = l
	say := func() {
		logger.Debug("a", 1)
		logger.Debugf("b%d", 1)
		logger.Info("a", 1)
		logger.Infof("b%d", 1)
		logger.Warning("a", 1)
		logger.Warningf("b%d", 1)
		logger.Error("a", 1)
		logger.Errorf("b%d", 1)
	}
	levels := func() string {
		var seen []string
		for line := range strings.Lines(buf.String()) {
			parts := strings.SplitN(strings.TrimSpace(line), ": ", 2)
			if !strings.HasPrefix(parts[0], "logger_test.go:") {
				t.Errorf("%q does not name the line of the caller", line)
			}
			seen = append(seen, parts[1])
		}
		buf.Reset()
		return strings.Join(seen, ", ")
	}
	say()
	want := "INFO: a1, INFO: b1, WARN: a1, WARN: b1, ERROR: a1, ERROR: b1"
	if got := levels(); got != want {
		t.Errorf("wrote %s, want %s", got, want)
	}
	l.EnableDebug()
	say()
	if got := levels(); got != "DEBUG: a1, DEBUG: b1, "+want {
		t.Errorf("with debugging, wrote %s", got)
	}
	for what, fn := range map[string]func(){"panic a1": func() { logger.Panic("panic a", 1) }, "panic b1": func() { logger.Panicf("panic b%d", 1) }} {
		if got := fmt.Sprint(mustPanic(t, fn)); !strings.Contains(got, what) {
			t.Errorf("panicked with %s", got)
		}
	}
	buf.Reset()
	l.EnableTimestamps()
	logger.Info("now")
	if got := buf.String(); !regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `).MatchString(got) {
		t.Errorf("no timestamp in %q", got)
	}
}

// Fatal messages end the program, with status 1: in another process.
func TestLoggerFatal(t *testing.T) {
	for _, role := range []string{"fatal", "fatalf"} {
		cmd := exec.Command(os.Args[0], "path")
		cmd.Env = append(os.Environ(), childEnv+"="+role)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "FATAL: the end 1") {
			t.Errorf("%s: %v, %s", role, err, out)
		}
	}
}
