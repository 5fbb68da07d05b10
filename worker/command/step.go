package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/command/size"
	"holdfast/worker/image"
	"holdfast/worker/prune"
	"holdfast/worker/service"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

func init() { register((*app).newStep) }

const stepHelp = `Run a command on top of a base, in a sandbox, and keep what it leaves as a snapshot.

The same step again - base, command, environment, directory, user, runtime, network, and the
content of what it sees and gets of this machine - runs nothing: it prints what was recorded.
The result is itself a base for further steps. For the next one on it, it is held, which prune
heeds: until that has a result, and for --hold at most.

What it sees of this machine: --mount SOURCE:TARGET:ro is a directory or file whose content is part
of the step, so a changed source file makes another step. Without :ro it can be written, and the step
is run each time, under a name of its own. --mount type=cache,id=NAME,target=TARGET is a directory
that is kept in the store from one step to the next, of which only the name counts; tmpfs:TARGET is
an empty one in memory. All of a source is read once, which is shown on a terminal. --copy copies
what is then part of the result; --output copies out of the result, also when nothing was run, over
what is there. --secret shows a file that is kept nowhere: not in the result, on a disk or in a log, and only
its name, path and mode are part of the step. What the command writes of it is kept.

What the command writes, on standard output and standard error, goes to standard output;
it reads nothing without --stdin. (With runc the order of the two is not kept.) Standard error says whether the
step was run (ran) or was there (hit), and what the result is called.

Environment, directory and user are those of the base's image, if it has them, unless
they are given. PATH is set if nothing else sets it. What is given is of this step alone: a step
on the result begins with those of the image again.

Exit codes: that of the command; 128 and the signal's number if it was killed, as by a
limit; 126 if it cannot be started, 127 if it is not there; 125 for all else that fails,
wrong command lines included; 141 if what reads the output has ended; 130 interrupted
by Ctrl-C, 128 and the number of any other signal that ended holdfastd.

Root in a step is an unprivileged user of this machine where ids can be mapped, as doctor says
(--userns): files of this machine that it sees by --mount it can change as root can, if their
file system can map ids, and otherwise only as all users can. With --network host it cannot listen at
ports below 1024.

An unprivileged user's steps run in a user namespace: with the runtime native, as one user,
without limits of memory, processors and processes.`

// Exit codes of step, beside those of commands: the ones of programs that run containers.
const (
	exitOwn  = 125 // a failure that is not the command's
	exitPipe = 141
)

type stepFlags struct {
	app *app

	base, workdir, user, network, runtime string
	userns, noNewPrivileges               string
	env, mounts, copies, outputs, secrets []string
	policy                                string
	memory, disk, reserve                 int64 // reserve -1: not given
	cpus                                  float64
	pids                                  int64
	timeout, hold                         time.Duration
	quiet, noCache, input                 bool

	policies prune.Config // by which room is made
	results  []output
	stdin    io.Reader
	inputOf  string // the flag that reads it
}

func (a *app) newStep() *cobra.Command {
	f := stepFlags{app: a}
	cmd := &cobra.Command{
		Use:   "step --base NAME [flags] -- COMMAND...",
		Short: "Run a command on a base, once",
		Long:  stepHelp,
		Example: "  holdfastd step --base debian --network host -- sh -c 'apt-get update && apt-get install -y gcc'\n" +
			"  holdfastd step --base gcc --mount $PWD:/src:ro --workdir /src -- make -n\n" +
			"  holdfastd step --base gcc --copy src:/src --workdir /src --output /src/bin:bin -- make\n" +
			"  holdfastd step --base node --mount type=cache,id=npm,target=/root/.npm --network host -- npm ci",
		Args:        cobra.MinimumNArgs(1),
		RunE:        a.action(func(c *call) error { return c.step(&f) }),
		Annotations: map[string]string{failsWith: strconv.Itoa(exitOwn)},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is its own
	flags.StringVar(&f.base, "base", "", "what to run it on: a base, or the result of another step")
	flags.StringArrayVar(&f.env, "env", nil, "NAME=VALUE, a variable of its environment; any number")
	flags.StringVar(&f.workdir, "workdir", "", "its working directory, made if it is not there")
	flags.StringVar(&f.user, "user", "", "who runs it: USER or USER:GROUP, numbers, or names in the base's /etc/passwd and /etc/group")
	flags.StringArrayVar(&f.mounts, "mount", nil, "SOURCE:TARGET:ro, what it sees of this machine, by content; SOURCE:TARGET, also :rw, can be written, and the step is not cached; tmpfs:TARGET is empty; type=cache,id=NAME,target=TARGET is kept for further steps, with sharing=shared (which it is), private (an instance of its own while others use it) or locked (which waits for others), and ro; any number")
	flags.StringArrayVar(&f.copies, "copy", nil, "SOURCE:TARGET, a directory's content or a file of this machine that is copied before the command runs; any number")
	flags.StringArrayVar(&f.outputs, "output", nil, "SOURCE:DEST, a directory's content or a file of the result that is copied to this machine, also if nothing was run; any number")
	flags.StringArrayVar(&f.secrets, "secret", nil, "a file that it sees in memory, and that is kept nowhere: "+secretUsage+"; without a target it is /run/secrets/NAME; any number")
	flags.BoolVar(&f.input, "stdin", false, "it reads the standard input, which is read to its end before, 64 MiB at most, and is part of the step by its content")
	flags.BoolVar(&f.noCache, "no-cache", false, "run the command though there is a result, in whose place comes what it leaves now")
	flags.StringVar(&f.network, "network", "none", "what it sees of the network, or nothing but a loopback device of its own: none|host")
	flags.StringVar(&f.runtime, "runtime", "native", "what runs it: native|runc")
	flags.StringVar(&f.userns, "userns", "auto", "with the runtime native, whether root in it is an unprivileged user of this machine, where ids can be mapped; results with and without are different: auto|off")
	flags.StringVar(&f.noNewPrivileges, "no-new-privileges", "on", "off: set-user-ID programs that the command starts count, such as sudo; with the runtime native that takes a user namespace: on|off")
	cli.SizeRangeVar(flags, &f.memory, "memory", 0, leastLimit, math.MaxInt64, "most memory, such as 512MiB; default: no limit")
	flags.Float64Var(&f.cpus, "cpus", 0, "most processors, such as 0.5; default: no limit")
	flags.Int64Var(&f.pids, "pids", 0, "most processes and threads; default: 4096, where cgroups can limit them")
	cli.DurationVar(flags, &f.timeout, "timeout", 0, "longest time that the command may take, such as 90s; default: no limit")
	cli.DurationVar(flags, &f.hold, "hold", step.DefaultHold, "how long the result stays for the next step on it, whatever is pruned; 0: not at all")
	cli.SizeRangeVar(flags, &f.disk, "disk", 0, leastLimit, math.MaxInt64, "most that the result may take, such as 2GiB, and with it the same part of the inodes of the disk, 10000 at least; default: no limit")
	cli.SizeRangeVar(flags, &f.reserve, "reserve", -1, 0, math.MaxInt64, "room on the disk that is reserved before it begins, and with it the same part of the inodes; default: that of --disk, or "+size.Text(defaultReserve)+"; 0: none")
	flags.StringVar(&f.policy, "policy", "", "file with policies in TOML, by which snapshots are pruned if that room is not there; default: the built-in ones")
	_ = cmd.MarkFlagFilename("policy", "toml")
	flags.BoolVar(&a.digests, "digests", false, digestsUsage)
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing on standard error when the command has been run")
	a.complete(cmd, "base", a.completeSnapshots(-1))
	return cmd
}

// step makes a step of the flags. What a base says of it is added by with.
func (f *stepFlags) step(ctx context.Context, command []string) (s step.Step, err error) {
	if f.base == "" {
		return s, cli.Usagef("--base is missing: give a base or the result of a step; holdfastd snapshot ls lists them")
	}
	s.Command, s.Dir = command, f.workdir
	if s.Limits, err = f.limits(); err != nil {
		return s, err
	}
	if f.policies, err = f.app.policies(ctx, f.policy); err != nil {
		return s, err
	}
	for i, e := range f.env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return s, cli.Usagef("--env is %q; it must be NAME=VALUE", e)
		}
		if service.HasName(f.env[:i], name) {
			return s, cli.Usagef("--env gives %s twice", name)
		}
	}
	s.Env = slices.Clone(f.env)
	if f.workdir != "" && !filepath.IsAbs(f.workdir) {
		return s, cli.Usagef("--workdir is %q; it must begin with /", f.workdir)
	}
	switch f.network {
	case "none":
	case "host":
		s.Network = step.NetworkHost
	default:
		return s, cli.Usagef("--network is %q; it can be none or host", f.network)
	}
	if err := f.files(&s); err != nil {
		return s, err
	}
	if f.input {
		if _, err := f.takeInput("--stdin"); err != nil {
			return s, err
		}
	}
	if err := f.secretsOf(&s); err != nil {
		return s, err
	}
	s.NoCache = f.noCache
	if f.user != "" {
		var ok bool
		if s.User, ok = step.ParseUser(f.user); !ok {
			return s, cli.Usagef("--user is %q; it must be USER or USER:GROUP, names or numbers", f.user)
		}
	}
	return s, nil
}

func (f *stepFlags) limits() (l step.Limits, err error) {
	l = step.Limits{CPU: f.cpus, Pids: f.pids, Time: f.timeout}
	l.Memory, l.Disk = f.memory, f.disk
	if f.cpus < 0 {
		return l, cli.Usagef("--cpus is %v; give more than 0, or leave it out: it is not a limit then", f.cpus)
	}
	if f.pids < 0 {
		return l, cli.Usagef("--pids is %d; give more than 0, or leave it out: it is %d then", f.pids, step.DefaultPids)
	}
	if math.IsNaN(f.cpus) || math.IsInf(f.cpus, 0) {
		return l, cli.Usagef("--cpus is %v; it is a number of processors such as 0.5", f.cpus)
	}
	return l, nil
}

// defaultReserve is what is reserved for a step of which nothing is known.
const defaultReserve = 256 << 20

// leastLimit is the least limit of memory and of disk that is taken: a smaller one lacks its unit.
const leastLimit = 1 << 20

// reservation is how many bytes are reserved for a step.
func (f *stepFlags) reservation(l step.Limits) int64 {
	switch {
	case f.reserve >= 0:
		return f.reserve
	case l.Disk > 0:
		return l.Disk
	}
	return defaultReserve
}

func (f *stepFlags) theRuntime() (step.Runtime, error) {
	switch f.runtime {
	case "native":
		return step.Native(), nil
	case "runc":
		return step.Runc(), nil
	}
	return nil, cli.Usagef("--runtime is %q; it can be native or runc", f.runtime)
}

func (f *stepFlags) userNamespaces() (step.UserNamespaces, error) {
	switch f.userns {
	case "auto":
		return step.UserNamespacesAuto, nil
	case "off":
		return step.UserNamespacesOff, nil
	}
	return 0, cli.Usagef("--userns is %q; it can be auto or off", f.userns)
}

func (f *stepFlags) newPrivileges() (bool, error) {
	if f.noNewPrivileges != "on" && f.noNewPrivileges != "off" {
		return false, cli.Usagef("--no-new-privileges is %q; it can be on or off", f.noNewPrivileges)
	}
	return f.noNewPrivileges == "off", nil
}

// with adds what the image of a base says, as far as no flag says otherwise.
func (f *stepFlags) with(s *step.Step, named snapshot.Info) error {
	err := service.Complete(s, named, f.user != "")
	if errors.Is(err, service.ErrUser) {
		err = &nextError{err, "give another with --user"}
	}
	return err
}

// step runs a step, as the flags say.
func (c *call) step(f *stepFlags) error {
	f.stdin = c.cmd.InOrStdin()
	s, err := f.step(c.ctx, c.args)
	if err != nil {
		return err
	}
	s.Hold = cmp.Or(f.hold, -1)
	if s.Runtime, err = f.theRuntime(); err != nil {
		return err
	}
	if s.UserNamespaces, err = f.userNamespaces(); err != nil {
		return err
	}
	if s.NewPrivileges, err = f.newPrivileges(); err != nil {
		return err
	}
	o := step.Options{Runtime: s.Runtime, UserNamespaces: s.UserNamespaces} // if this process is the one that runs it
	if err := c.needStore(); err != nil {
		return err
	}
	if !privileged() {
		return c.inUserNamespace()
	}
	if s.Stdin, err = c.readInput(f); err != nil {
		return err
	}
	if s.Stdin != nil {
		defer s.Stdin.Close()
	}
	defer cli.OutliveReader()()
	c.volatile = true
	var done *stepReport
	err = c.withRunner(o, s.Mounts, func(t *snapshot.Namespace, r *step.Runner) error {
		if s.Base, err = c.resolve(t, f, &s); err != nil {
			return err
		}
		if err := checkOutputs(r, f.results); err != nil {
			return err
		}
		if done, err = c.runStep(t, r, s, f); err == nil && done.Snapshot != "" {
			err = c.export(r, done.Snapshot, f.results)
		}
		return err
	})
	switch {
	case cli.IsClosedPipe(err):
		return &exitError{code: exitPipe}
	case err != nil:
		return err
	}
	return c.reportStep(done, f.quiet)
}

// resolve is the name of the snapshot to build on. What its image says is added to the step.
func (c *call) resolve(t *snapshot.Namespace, f *stepFlags, s *step.Step) (string, error) {
	named, err := c.find(t, f.base)
	if err != nil {
		return "", fmt.Errorf("base %s: %w", f.base, err)
	}
	on, err := image.Resolve(c.ctx, t, named.Name)
	if err != nil {
		return "", err
	}
	return on.Name, f.with(s, named)
}
