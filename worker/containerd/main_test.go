package containerd_test

import (
	"os"
	"testing"

	"holdfast/worker/internal/testing/zfsfuse"
)

func TestMain(m *testing.M) {
	zfsfuse.RunAsProgram()
	os.Exit(zfsfuse.Main(m))
}
