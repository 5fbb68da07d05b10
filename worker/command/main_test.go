package command_test

import (
	"os"
	"testing"

	"holdfast/worker/snapshot/drivertest"
)

func TestMain(m *testing.M) { os.Exit(drivertest.Main(m)) }
