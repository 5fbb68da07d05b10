// Package step runs commands on top of snapshots and keeps what they leave. A step is a base, a
// command and what it sees. Its result is a snapshot named by a hash of all of that, so the same
// step again runs nothing.
//
// # A step
//
// A program that uses this package calls Init first in its main function. It opens a store and a
// manager of mounts, and makes a Runner, which runs any number of steps at once:
//
//	func main() {
//		step.Init()
//		...
//		manager, err := mount.Open(ctx, mount.Options{
//			Keep:    []string{store.Root()},
//			Cgroups: step.Cgroups(step.DefaultCgroup(store.Root())),
//		})
//		runner, err := step.New(ctx, step.Options{Namespace: names, Mounts: manager})
//
// Run returns the result. The second time it is a hit, which runs nothing. A command that fails is
// a Failure with its output, and leaves nothing else:
//
//	s := step.Step{Base: "debian", Command: []string{"sh", "-c", "echo hello >/greeting"}}
//	result, err := runner.Run(ctx, s, os.Stdout)
//
//	var failure *step.Failure
//	if errors.As(err, &failure) {
//		fmt.Printf("exit code %d\n%s", failure.Code, failure.Output)
//	}
//
// The result is the base of further steps:
//
//	next := step.Step{Base: result.Snapshot, Command: []string{"cat", "/greeting"}}
//
// Close the Runner before the manager of mounts, and that before the store.
//
// # Isolation
//
// Two runtimes run commands: Native, which starts in a few milliseconds, and Runc. Both stop a
// hostile command, and neither stops one that exploits an error of the kernel; Isolations says what
// they have on this machine, and docs/worker/isolation.md which attacker each stops.
//
// docs/worker/steps.md says what a command sees and how it is limited, docs/worker/cache-keys.md
// what is part of the hash, docs/worker/internals.md what always holds (S1 to S7).
package step
