package command_test

import (
	"context"
	"os"
	"testing"

	"holdfast/worker/command"
	"holdfast/worker/snapshot/drivertest"
	"holdfast/worker/step"
)

// envMain has this program be holdfastd.
const envMain = "HOLDFASTD_TEST_MAIN"

func TestMain(m *testing.M) {
	step.Init()
	if os.Getenv(envMain) != "" {
		os.Exit(command.Execute(context.Background(), command.NewRootCommand()))
	}
	os.Exit(drivertest.MainZFS(m))
}
