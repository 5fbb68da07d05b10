package containerd_test

import (
	"os"
	"testing"

	"holdfast/worker/snapshot/drivertest"
)

func TestMain(m *testing.M) { os.Exit(drivertest.MainZFS(m)) }
