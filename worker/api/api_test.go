package api

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated: the code is that of worker.proto.
func TestGenerated(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("Debian's protobuf-compiler and libprotobuf-dev are needed: %v", err)
		}
		t.Skip("needs protoc, which scripts/test installs as root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("./generate", dir).CombinedOutput(); err != nil {
		t.Fatalf("generate: %v: %s", err, out)
	}
	for _, name := range []string{"worker.pb.go", "worker.connect.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what worker/api/generate makes: run it (%v)", name, err)
		}
	}
}
