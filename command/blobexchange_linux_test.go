package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// serveLine is a command line that serves a store, as ssh would run it: this test binary.
func serveLine(t *testing.T, args string) string {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	return fmt.Sprintf("%s=1 %s blob serve %s", asCommand, self, args)
}

// TestBlobExchangeExec exchanges blobs with a command that serves a store, both ways.
func TestBlobExchangeExec(t *testing.T) {
	a, b := makeExchange(t)
	for _, file := range []string{"there.db", "here.db"} {
		must(t, "blob", "put", file, "store", "short", "--create", "--leaf-size", "4KiB")
	}
	must(t, "blob", "push", "blobs.db", "store", "--all", "--exec", serveLine(t, "there.db store"))
	received(t, "there.db", "store", a, b)
	must(t, "blob", "pull", "here.db", "store", "--all", "--exec", serveLine(t, "there.db store --read-only"))
	received(t, "here.db", "store", a, b)
	must(t, "blob", "push", "blobs.db", "store", digestOf(a), "--exec", serveLine(t, "here.db store --lease own"))
	wantIn(t, run(t, "blob", "push", "blobs.db", "store", digestOf(a), "--exec", serveLine(t, "here.db store --lease own --verify")), 0, "0 bytes in 0 chunks came over", "")
	spoilLeaf(t, "here.db", a[4096:8192])
	wantIn(t, run(t, "blob", "push", "blobs.db", "store", digestOf(a), "--exec", serveLine(t, "here.db store --lease own --verify")), 0, "in 1 chunk came over", "")
	if stat := must(t, "blob", "stat", "here.db", "store"); !strings.Contains(stat, "own of 1 blob until it is released") {
		t.Error(stat)
	}
	must(t, "blob", "pull", "here.db", "store", refOf(t, "there.db", "store", len(a))[len("sha256-tree:"):][:12], "--exec", serveLine(t, "there.db store"))

	for line, want := range map[string]string{
		serveLine(t, "there.db store --read-only"): "served for reading only",
		serveLine(t, "nix.db store"):               "nix.db: no such file",
		"exit 7":                                   "has ended: exit status 7; what has arrived is kept; the same command goes on from there",
		"echo Welcome to this host":                "writes nothing else to its output",
	} {
		r := run(t, "blob", "push", "blobs.db", "store", "--all", "--exec", line)
		wantIn(t, r, 1, "", want)
	}
	r := run(t, "blob", "pull", "here.db", "store", "abcdef1234567", "--exec", serveLine(t, "there.db store"))
	wantIn(t, r, 1, "", "no blob of the peer has a digest that begins so")
}

// TestBlobExchangeKilled ends each side by a signal that it cannot heed, in the middle. What has arrived stays, the store is
// sound, and the next exchange sends the rest only.
func TestBlobExchangeKilled(t *testing.T) {
	workdir(t)
	big := random(3, 120<<20)
	check(t, os.WriteFile("big", big, 0o600))
	must(t, "blob", "put", "a.db", "store", "big", "--create")
	check(t, os.WriteFile("small", nil, 0o600))
	for _, kill := range []string{"push", "serve"} {
		file := kill + ".db"
		must(t, "blob", "put", file, "store", "small", "--create")
		cmd := process(t, "blob", "push", "a.db", "store", "--all", "--exec", "echo $$ >pid; "+"exec env "+serveLine(t, file+" store"))
		check(t, cmd.Start())
		empty := fileSize(t, file)
		for begin := time.Now(); fileSize(t, file) < empty+(50<<20); {
			if time.Sleep(time.Millisecond); time.Since(begin) > time.Minute {
				t.Fatal("nothing arrives")
			}
		}
		pid := cmd.Process.Pid
		if kill == "serve" {
			data, err := os.ReadFile("pid")
			check(t, err)
			_, err = fmt.Sscan(string(data), &pid)
			check(t, err)
		}
		p, err := os.FindProcess(pid)
		check(t, err)
		check(t, p.Kill())
		err = cmd.Wait()
		if kill == "serve" && cmd.ProcessState.ExitCode() != 1 {
			t.Error(err)
		}
		must(t, "blob", "check", "--data", file, "store", "--timeout", "20s")
		stat := must(t, "blob", "stat", file, "store")
		if !strings.Contains(stat, "Unfinished") {
			t.Fatalf("it was over before it was ended: %s", stat)
		}
		out := must(t, "blob", "push", "a.db", "store", "--all", "--to", file, "--json")
		if sent := jsonNumber(t, out, "chunk_bytes"); sent == 0 || sent > int64(len(big))-(10<<20) {
			t.Errorf("%s: %d bytes were sent again", kill, sent)
		}
		received(t, file, "store", big)
	}
}

func jsonNumber(t *testing.T, text, field string) (n int64) {
	t.Helper()
	_, after, ok := strings.Cut(text, `"`+field+`": `)
	if !ok {
		t.Fatalf("no %s in %s", field, text)
	}
	_, err := fmt.Sscan(strings.TrimRight(strings.SplitN(after, "\n", 2)[0], ","), &n)
	check(t, err)
	return n
}

// A command closed its output and did not end: the exchange had failed, and waited for it.
func TestBlobExchangeLingering(t *testing.T) {
	makeExchange(t)
	begin := time.Now()
	wantIn(t, run(t, "blob", "push", "blobs.db", "store", "--all", "--exec", "exec >&-; sleep 60"), 1, "", "blobs.db: the command that serves the other store has ended")
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}
