package engine

import (
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"holdfast"
	"holdfast/test/hook"
)

// childEnv names what this test binary does, if it is set, instead of running
// tests: some tests need another process, which is this binary again.
const childEnv = "HOLDFAST_TEST_CHILD"

func TestMain(m *testing.M) {
	role := os.Getenv(childEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	os.Exit(child(role, os.Args[1]))
}

func defaultLogger() *holdfast.DefaultLogger {
	return &holdfast.DefaultLogger{Logger: log.New(os.Stderr, "", 0)}
}

// child runs in the other process. It prints one line when it is ready, or what
// it found, and holds what it holds until its input ends.
func child(role, path string) int {
	options := &holdfast.Options{Timeout: time.Minute}
	switch role {
	case "fatal":
		defaultLogger().Fatal("the end ", 1)
	case "fatalf":
		defaultLogger().Fatalf("the end %d", 1)
	case "hold", "nested":
	case "hold-shared":
		options.ReadOnly = true
	case "open": // only try, and tell what came of it
		for _, readOnly := range []bool{false, true} {
			options.ReadOnly = readOnly
			db, err := holdfast.Open(path, 0o600, options)
			if err == nil {
				db.Close()
			}
			fmt.Printf("%t %v\n", os.IsPermission(err), err)
		}
		return 0
	default:
		fmt.Printf("no role %q\n", role)
		return 2
	}
	db, err := holdfast.Open(path, 0o600, options)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if role == "nested" {
		hook.WarnAfter(db, time.Millisecond)
		fmt.Println(nestedUpdate(db))
		return 1
	}
	fmt.Println("ready")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	if err := db.Close(); err != nil {
		return 1
	}
	return 0
}
