//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/internal/remote"
	"holdfast/worker/prune"
	"holdfast/worker/registry"
	"holdfast/worker/remotecache"
	"holdfast/worker/service"
)

func init() { register((*app).newServe) }

const serveHelp = `Keep the store open, and run in this process the commands that others are given for it, at once,
without waiting for the store; of steps as many as the machine has processors, four at least, or as
[steps] concurrency in the configuration says. The other commands find the socket in the directory
of the store, and are refused unless their user is that of the daemon, or root.

SIGTERM or Ctrl-C ends it when the commands that run have ended; again, it ends them.
systemd is told when it is ready (Type=notify), and that it is alive (WatchdogSec=).`

// socketName is the name of the socket, in the directory of a store, on which a daemon takes commands.
const socketName = "command.sock"

// logTo is a logger for an operator.
func logTo(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// exportGrace is how long a daemon that is to end exports results. The others are when it is started again.
const exportGrace = time.Minute

// drainNotice is how often a daemon that is to end says for what it waits.
const drainNotice = 10 * time.Second

func (a *app) newServe() *cobra.Command {
	file, http := "", ""
	cmd := &cobra.Command{
		Use: "serve", Short: "Keep the store open for other commands", Long: serveHelp, Args: cobra.NoArgs,
		RunE: a.action(func(c *call) error { return c.serve(file, http) }), Annotations: map[string]string{runsHere: "yes"},
	}
	cmd.Flags().StringVar(&file, "config", "", "file with the configuration; default: "+DefaultConfigPath+", if it is there")
	cmd.Flags().StringVar(&http, "http", "", "serve the page at this address, such as 127.0.0.1:8723; default: as the configuration says")
	_ = cmd.MarkFlagFilename("config", "toml")
	return cmd
}

// configured reads the configuration. Flags that are given count more.
func (c *call) configured(file, http string) (*config, error) {
	got, err := loadConfig(file)
	if err != nil {
		return nil, err
	}
	for name, set := range map[string]func(){
		"root": func() { c.root = got.Root }, "driver": func() { c.driver = got.Driver }, "run": func() { c.run = got.Run },
	} {
		if !c.cmd.Flags().Changed(name) {
			set()
		}
	}
	if http != "" {
		got.HTTP.Listen = http
		if err := got.HTTP.check(); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
	}
	return got, nil
}

func (c *call) serve(file, http string) (err error) {
	log := logTo(c.cmd.ErrOrStderr(), slog.LevelInfo)
	if !privileged() {
		return &nextError{errors.New("a daemon mounts and runs steps: it needs root"), "run it as root, for example with sudo"}
	}
	got, err := c.configured(file, http)
	if err != nil {
		return err
	}
	policies, err := c.configuredPolicies(c.ctx, got)
	if err != nil {
		return err
	}
	s, err := c.openShared(got)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(c)) }()
	at, err := passedSockets()
	if err != nil {
		return err
	}
	clients, err := s.serveClients(log, at, got.Containerd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.remove(), clients.close()) }()
	live := policiesOf(got, policies)
	api, err := c.serveAPI(s, log, at, got, clients, live)
	defer api.close()
	if err != nil {
		return err
	}
	s.page = api.page
	path := filepath.Join(s.store.Root(), socketName)
	l, err := at.replace(path)
	if err != nil {
		return err
	}
	a := *c.app
	a.root = s.store.Root()
	server := &remote.Server{Logger: log, Run: func(ctx context.Context, r *remote.Command) int { return s.run(ctx, a, r) }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	pruning := c.pruneNowAndThen(log, s, file, got, live, api.service)
	defer pruning()
	at.warn(log)
	log.Info("ready", "store", s.store.Root(), "socket", path)
	notify(log, daemon.SdNotifyReady)
	defer c.watchdog(log, s)()
	select {
	case <-c.ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", path, err)
	case err = <-clients.failed:
	case err = <-api.failed:
	}
	notify(log, daemon.SdNotifyStopping)
	err = errors.Join(err, at.remove(path), l.Close()) // who comes now opens the store itself, and waits for it
	drain(log, server, api, s.cache)
	return err
}

// pruneNowAndThen prunes in the background until the function that it returns is called, which waits for that. SIGHUP has it
// read the configuration again.
func (c *call) pruneNowAndThen(log *slog.Logger, s *shared, file string, got *config, live *livePolicies, figures *service.Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	again := make(chan os.Signal, 1)
	signal.Reset(syscall.SIGHUP) // which would end the daemon, as it ends other commands
	signal.Notify(again, syscall.SIGHUP)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			var due <-chan time.Time // never
			if every := time.Duration(got.Prune.Interval); every > 0 {
				due = time.After(every)
			}
			select {
			case <-ctx.Done():
				return
			case <-again:
				got = c.reload(log, file, got, live)
			case <-due:
				s.prune(ctx, log, live.Load().Config, figures)
			}
		}
	})
	return func() {
		signal.Stop(again)
		cancel()
		done.Wait()
	}
}

// reload reads the configuration again; what is wrong stays as it is.
func (c *call) reload(log *slog.Logger, file string, old *config, live *livePolicies) *config {
	got, err := loadConfig(file)
	var read prune.Config
	if err == nil {
		read, err = c.configuredPolicies(c.ctx, got)
	}
	if err != nil {
		log.Error("the configuration is wrong, and stays as it was", "reason", err)
		return old
	}
	kept := *got
	kept.Prune = old.Prune
	if !reflect.DeepEqual(kept, *old) {
		log.Warn("only what is in [prune] is changed without a restart")
	}
	live.set(got, read)
	log.Info("the configuration was read again", "interval", time.Duration(got.Prune.Interval))
	return got
}

// prune prunes once. Errors are logged: the next time it is tried again.
func (s *shared) prune(ctx context.Context, log *slog.Logger, policies prune.Config, figures *service.Service) {
	p, err := prune.New(s.store, prune.Options{Config: policies})
	var result prune.Result
	if err == nil {
		result, err = p.Run(ctx)
	}
	if ctx.Err() == nil {
		figures.Pruned(result, err)
	}
	if err == nil {
		err = s.runner.ForgetGone(ctx) // also of what steps have pruned that needed room
	}
	client := registry.Client{Downloads: filepath.Join(s.store.Root(), downloadsName)}
	err = errors.Join(err, client.Clean(ctx))
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Error("pruning failed", "reason", err)
	case result.Snapshots > 0:
		log.Info("pruned", "snapshots", result.Snapshots, "bytes", result.Bytes, "left", result.After.Snapshots, "free", result.After.Free)
	}
}

// run runs a command that another process has sent, and returns its exit code.
func (s *shared) run(ctx context.Context, a app, r *remote.Command) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case got := <-r.Signals:
			cancel(&cli.Interrupted{Signal: got})
		case <-ctx.Done():
		}
	}()
	a.shared, a.dir, a.pid = s, r.Dir, r.PID
	root := newRoot(&a)
	root.SetArgs(r.Args)
	root.SetIn(r.Stdin)
	root.SetOut(r.Stdout)
	root.SetErr(r.Stderr)
	return execute(ctx, root)
}

// drain waits until all commands and calls have ended, and for a while until the results that they have made are exported. The
// next signal cancels what runs.
func drain(log *slog.Logger, server *remote.Server, api *apiServer, cache *remotecache.Cache) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		server.Drain()
		api.drain(ctx)
		if cache != nil {
			ctx, cancel := context.WithTimeout(ctx, exportGrace)
			defer cancel()
			cache.Drain(ctx)
		}
		close(done)
	}()
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	for {
		select {
		case <-done:
			return
		case <-again:
			server.Cancel()
			cancel()
		case <-time.After(drainNotice):
			waiting := 0
			if cache != nil {
				waiting = cache.Waiting()
			}
			log.Info("waiting for commands to end", "running", server.Running(), "steps", api.service.Running(), "exports", waiting)
		}
	}
}

// notify tells systemd, if it has started the daemon and wants to know.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "state", state, "reason", err)
	}
}

// watchdog tells systemd again and again that the daemon is alive, as long as the store answers.
func (c *call) watchdog(log *slog.Logger, s *shared) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.ctx)) // also while commands end
	go func() {
		for ctx.Err() == nil {
			if _, err := s.store.Totals(ctx); err == nil {
				notify(log, daemon.SdNotifyWatchdog)
			} else if ctx.Err() == nil {
				log.Error("the store does not answer", "reason", err)
			}
			sleep(ctx, interval/2)
		}
	}()
	return stop
}
