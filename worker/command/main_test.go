package command_test

import (
	"context"
	"os"
	"testing"

	"holdfast/worker/command"
	"holdfast/worker/internal/testing/zfsfuse"
	"holdfast/worker/step"
)

// envMain has this program be holdfastd.
const envMain = "HOLDFASTD_TEST_MAIN"

func TestMain(m *testing.M) {
	zfsfuse.RunAsProgram()
	step.Init()
	command.SetMounters(zfsfuse.Mounters())
	if os.Getenv(envMain) != "" {
		os.Exit(command.Execute(context.Background(), command.NewRootCommand()))
	}
	os.Exit(zfsfuse.Main(m))
}
