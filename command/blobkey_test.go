package command_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"runtime"
	"strings"
	"testing"
)

// makeEncrypted makes x.db with an encrypted store that has the blobs text and noise, and the key in key.
func makeEncrypted(t *testing.T) (text, noise []byte) {
	t.Helper()
	workdir(t)
	text, noise = []byte(strings.Repeat("some secret text; ", 20_000)), random(3, 100_000)
	check(t, os.WriteFile("text", text, 0o600))
	check(t, os.WriteFile("noise", noise, 0o600))
	must(t, "blob", "key", "key")
	got := must(t, "blob", "put", "x.db", "store", "text", "noise", "--create", "--encrypt", "--key-file", "key", "-q")
	if got != digestOf(text)+"\n"+digestOf(noise)+"\n" {
		t.Error(got)
	}
	return text, noise
}

// TestBlobEncrypted: what is in an encrypted store comes back with its key, given by a flag or the environment, and is not in the
// file in clear; without the key, or with another one, all commands say what to give.
func TestBlobEncrypted(t *testing.T) {
	text, noise := makeEncrypted(t)
	file := mustRead(t, "x.db")
	for _, p := range [][]byte{text[:60], noise[1000:1020], noise[70_000:70_020]} {
		if bytes.Contains(file, p) {
			t.Errorf("%.20q is in the file", p)
		}
	}
	for _, data := range [][]byte{text, noise} {
		if got := must(t, "blob", "cat", "x.db", "store", digestOf(data), "--key-file", "key"); got != string(data) {
			t.Errorf("%d bytes are %d others", len(data), len(got))
		}
	}
	must(t, "blob", "key", "other")
	for _, command := range [][]string{{"stat"}, {"ls"}, {"gc"}, {"check"}, {"check", "--repair"}, {"cat", digestOf(text)}, {"put", "text"}, {"put", "text", "--create"},
		{"rm", digestOf(text)}, {"get", digestOf(text), "-o", "out"}, {"push", "--all", "--to", "y.db", "--create"}} {
		args := append([]string{"blob", command[0], "x.db", "store"}, command[1:]...)
		wantIn(t, run(t, args...), 1, "", "x.db: store store is encrypted; give the file with its key: --key-file, or HOLDFAST_BLOB_KEY_FILE in the environment")
		wantIn(t, run(t, append(args, "--key-file", "other")...), 1, "", "is encrypted with another key than that in other; give the file with its key by --key-file")
	}
	t.Setenv("HOLDFAST_BLOB_KEY_FILE", "key")
	wantIn(t, run(t, "blob", "stat", "x.db", "store"), 0, "blake3-keyed, fixed leaves of 64 KiB (65,447 bytes), encrypted\n", "")
	wantIn(t, run(t, "--json", "blob", "stat", "x.db", "store"), 0, `"encrypted": true`, "")
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data", "--digests"), 0, "", "")
	wantIn(t, run(t, "blob", "ls", "x.db", "store"), 0, digestOf(text), "")
	wantIn(t, run(t, "blob", "cat", "x.db", "store", digestOf(noise)[7:20], "--length", "3"), 0, string(noise[:3]), "")
	wantIn(t, run(t, "check", "x.db"), 0, "", "")
	// A store that is not encrypted does not take the place of one that is.
	t.Setenv("HOLDFAST_BLOB_KEY_FILE", "")
	must(t, "blob", "put", "plain.db", "store", "text", "--create")
	t.Setenv("HOLDFAST_BLOB_KEY_FILE", "key")
	wantIn(t, run(t, "blob", "put", "plain.db", "store", "noise"), 1, "", "store store is not encrypted, and a key is given by HOLDFAST_BLOB_KEY_FILE; leave the key out if that is right")
	refused := run(t, "blob", "put", "new.db", "store", "noise", "--create")
	wantIn(t, refused, 2, "", "the new store would not be encrypted: --encrypt has it be")
	if refused.out != "" { // "created the store" was said, of which nothing is there
		t.Error(refused)
	}
	wantIn(t, run(t, "blob", "put", "new.db", "store", "noise", "--create", "--encrypt", "--algorithm", "sha256"), 2, "", "--algorithm does not go with --encrypt")
	t.Setenv("HOLDFAST_BLOB_KEY_FILE", "")
	wantIn(t, run(t, "blob", "put", "new.db", "store", "noise", "--create", "--encrypt"), 2, "", "--encrypt needs a key: give its file with --key-file; holdfast blob key makes one")
}

// TestBlobKeyFiles: a key is in hexadecimal or base64; what is none, or is missing, is an error that says so; who else may read it is noted.
func TestBlobKeyFiles(t *testing.T) {
	makeEncrypted(t)
	key, err := hex.DecodeString(strings.TrimSpace(string(mustRead(t, "key"))))
	check(t, err)
	for name, content := range map[string]string{"base64": base64.StdEncoding.EncodeToString(key), "raw base64": base64.RawStdEncoding.EncodeToString(key) + "\n",
		"upper": " " + strings.ToUpper(hex.EncodeToString(key)) + "\r\n"} {
		check(t, os.WriteFile("k", []byte(content), 0o600))
		if out := run(t, "blob", "ls", "x.db", "store", "--key-file", "k"); out.code != 0 || out.errOut != "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	for name, content := range map[string]string{"empty": "", "short": hex.EncodeToString(key[:31]), "long": hex.EncodeToString(key) + "00", "two": hex.EncodeToString(key) + "\n" + hex.EncodeToString(key),
		"bytes": string(key), "noise": string(random(1, 5000))} {
		check(t, os.WriteFile("k", []byte(content), 0o600))
		if out := run(t, "blob", "ls", "x.db", "store", "--key-file", "k"); out.code != 1 || !strings.Contains(out.errOut, "k: holds no key: 32 bytes in hexadecimal or base64, and nothing else; holdfast blob key makes a new one") {
			t.Errorf("%s: %+v", name, out)
		}
	}
	wantIn(t, run(t, "blob", "ls", "x.db", "store", "--key-file", "missing"), 1, "", "missing: no such file; give the file with the key")
	wantIn(t, run(t, "blob", "key", "key"), 1, "", "key: exists; give a new file")
	if runtime.GOOS != "windows" {
		check(t, os.Chmod("key", 0o644))
		wantIn(t, run(t, "blob", "ls", "x.db", "store", "--key-file", "key"), 0, "", "key: note: other users may read the key; chmod 600 keeps them from it")
	}
	one, two := mustRead(t, "key"), []byte(nil)
	must(t, "blob", "key", "second")
	if two = mustRead(t, "second"); bytes.Equal(one, two) || len(two) != 65 {
		t.Errorf("%q, %q", one, two)
	}
	if info, err := os.Stat("second"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

// TestBlobEncryptedExchange: --create makes the receiving store with the same key; stores with different keys, or without, say so.
func TestBlobEncryptedExchange(t *testing.T) {
	text, _ := makeEncrypted(t)
	must(t, "blob", "push", "x.db", "store", "--all", "--to", "y.db", "--create", "--key-file", "key")
	found := false
	for _, line := range strings.Split(strings.TrimSpace(must(t, "blob", "ls", "y.db", "store", "--key-file", "key")), "\n") {
		name, _, _ := strings.Cut(line, " ")
		found = found || must(t, "blob", "cat", "y.db", "store", name, "--key-file", "key") == string(text)
	}
	if !found {
		t.Error("the text is not there")
	}
	wantIn(t, run(t, "blob", "ls", "y.db", "store"), 1, "", "store store is encrypted")
	must(t, "blob", "put", "plain.db", "store", "text", "--create")
	wantIn(t, run(t, "blob", "pull", "x.db", "store", "--all", "--from", "plain.db", "--key-file", "key"), 1, "", "plain.db: store store is not encrypted")
}

// TestImportEncrypted: columns of blobs go into an encrypted store, come out of it with the key, and are not in the file.
func TestImportEncrypted(t *testing.T) {
	makeEncrypted(t)
	rows := "id,photo\n1,secret value one\n2," + strings.Repeat("secret value two ", 50) + "\n"
	check(t, os.WriteFile("rows.csv", []byte(rows), 0o600))
	load := []string{"import", "t.db", "rows", "--csv", "--header", "--input", "rows.csv", "--blob-columns", "photo", "--create", "--key-file", "key"}
	wantIn(t, run(t, append(load, "--inline")...), 2, "", "--inline: the store is encrypted, and keeps no blobs in rows")
	must(t, load...)
	if bytes.Contains(mustRead(t, "t.db"), []byte("secret value")) {
		t.Error("it is in the file in clear")
	}
	wantIn(t, run(t, "blob", "stat", "t.db", "blobs", "--key-file", "key"), 0, "encrypted", "")
	wantIn(t, run(t, "export", "t.db", "rows", "--csv"), 1, "", "store blobs is encrypted; give the file with its key")
	t.Setenv("HOLDFAST_BLOB_KEY_FILE", "key")
	if got := must(t, "export", "t.db", "rows", "--csv"); got != rows {
		t.Errorf("%q", got)
	}
}
