package step_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/step"
)

// The main function of a program that runs steps. It needs root and a base, so it is compiled and
// not run.
func Example() {
	step.Init() // before all else

	ctx := context.Background()
	store, err := snapshot.Open("/var/lib/holdfast", snapshot.Options{Driver: overlay.New("volatile")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	names, err := store.Namespace("local")
	if err != nil {
		log.Fatal(err)
	}
	manager, err := mount.Open(ctx, mount.Options{
		Keep:    []string{store.Root()},
		Cgroups: step.Cgroups(step.DefaultCgroup(store.Root())),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	runner, err := step.New(ctx, step.Options{Namespace: names, Mounts: manager})
	if err != nil {
		log.Fatal(err)
	}
	defer runner.Close()

	s := step.Step{Base: "debian", Command: []string{"/bin/sh", "-c", "echo hello >/greeting"}}
	result, err := runner.Run(ctx, s, os.Stdout)
	var failure *step.Failure
	if errors.As(err, &failure) {
		log.Fatalf("exit code %d\n%s", failure.Code, failure.Output)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Snapshot, result.Hit)
}
