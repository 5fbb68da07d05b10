// Command bench-age replays the life of a build worker's database on every embedded store, and
// measures each on the first day and after each stretch of days (package age).
//
//	go run ./cmd/bench-age                                # a hundred days, less than ten minutes
//	go run ./cmd/bench-age -full -html age.html           # a thousand days, an hour or more
//	go run -tags lmdb ./cmd/bench-age                     # with LMDB
//	go run ./cmd/bench-age -peers holdfast,stock -check   # two stores; what has stayed as it was
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"holdfast/bench/age"
	"holdfast/bench/age/stores"
	"holdfast/bench/age/traces"
	"holdfast/bench/program"
)

func main() {
	age.RunChild(stores.All(), traces.All)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(program.ExitCode("bench-age", err, os.Stderr))
}
