package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"holdfast/worker/api"
	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// defaultReserve is what is reserved for a step of which nothing is known.
const defaultReserve = 256 << 20

// maxChunk is how many bytes of output a message has at most.
const maxChunk = 64 << 10

// steps implements the service Steps.
type steps struct{ *Service }

// Run implements api.StepsHandler.
func (s steps) Run(ctx context.Context, req *connect.Request[api.RunRequest], stream *connect.ServerStream[api.RunResponse]) error {
	st, err := s.stepOf(ctx, req.Msg)
	if err != nil {
		return coded(err)
	}
	if req.Msg.Stdin != nil {
		if st.Stdin, err = s.stdin(req.Msg.Stdin); err != nil {
			return coded(err)
		}
		defer st.Stdin.Close()
	}
	res, err := s.Runner.Run(ctx, st, outputWriter(func(b []byte) error {
		return stream.Send(&api.RunResponse{Event: &api.RunResponse_Output{Output: b}})
	}))
	var failure *step.Failure
	out := &api.StepResult{}
	switch {
	case err == nil:
		out.Id, out.Snapshot, out.Hit, out.ExitCode, out.Uncached = res.ID.String(), res.Snapshot, res.Hit, int32(res.Code), res.Uncached
		out.FetchedFrom = res.From
		out.Created, out.Duration, out.OutputBytes = timestamp(res.Created), duration(res.Duration), res.OutputSize
		put(out, res.Usage)
	case errors.As(err, &failure) && !errors.Is(err, step.ErrCanceled):
		out.Id, out.ExitCode, out.Reason = failure.ID.String(), int32(failure.Code), failure.Reason.Error()
		out.Duration, out.OutputBytes = duration(failure.Duration), failure.OutputSize
		put(out, failure.Usage)
	default:
		return coded(err)
	}
	return stream.Send(&api.RunResponse{Event: &api.RunResponse_Result{Result: out}})
}

// stdin is a file without a name that has the standard input of a step.
func (s *Service) stdin(b []byte) (*os.File, error) {
	if err := os.MkdirAll(s.Client.Downloads, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.Client.Downloads, "stdin-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name()) // Client.Clean removes that of a process that was killed
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func put(out *api.StepResult, u step.Usage) {
	out.UserTime, out.SystemTime, out.MemoryBytes = duration(u.User), duration(u.System), u.Memory
}

// outputWriter sends what is written in messages.
type outputWriter func([]byte) error

func (w outputWriter) Write(p []byte) (int, error) {
	for chunk := range slices.Chunk(p, maxChunk) {
		if err := w(chunk); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

var sharings = map[api.Sharing]step.Sharing{api.Sharing_SHARING_SHARED: step.SharingShared, api.Sharing_SHARING_PRIVATE: step.SharingPrivate, api.Sharing_SHARING_LOCKED: step.SharingLocked}

// stepOf is the step of a request.
func (s steps) stepOf(ctx context.Context, r *api.RunRequest) (st step.Step, err error) {
	named, err := s.Namespace.Stat(ctx, r.Base)
	if err != nil {
		return st, fmt.Errorf("base %q: %w", r.Base, err)
	}
	on, err := image.Resolve(ctx, s.Namespace, named.Name)
	if err != nil {
		return st, err
	}
	l := r.Limits
	st = step.Step{Base: on.Name, Command: r.Command, Env: r.Env, Dir: r.Workdir, NoCache: r.NoCache, NewPrivileges: r.NewPrivileges, Limits: step.Limits{
		Memory: l.GetMemoryBytes(), CPU: l.GetCpus(), Pids: l.GetPids(), Time: l.GetTime().AsDuration(), Disk: l.GetDiskBytes()}}
	if err := choose(&st, r); err != nil {
		return st, err
	}
	for _, c := range r.Caches {
		sharing, ok := sharings[c.GetSharing()]
		if !ok {
			return st, invalid(fmt.Sprintf("sharing is %d", c.GetSharing()))
		}
		st.Mounts = append(st.Mounts, step.Mount{Cache: c.GetId(), Target: c.GetTarget(), Sharing: sharing, ReadOnly: c.GetReadOnly()})
	}
	for _, target := range r.Tmpfs {
		st.Mounts = append(st.Mounts, step.Mount{Target: target})
	}
	for _, x := range r.Secrets {
		if x.GetMode() > 0o777 {
			return st, invalid(fmt.Sprintf("the mode of a secret is %o", x.GetMode()))
		}
		st.Secrets = append(st.Secrets, step.Secret{ID: x.GetId(), Target: x.GetTarget(), Mode: fs.FileMode(x.GetMode()),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.GetData())), nil }})
	}
	if r.Hold != nil {
		if st.Hold = r.Hold.AsDuration(); st.Hold <= 0 {
			st.Hold = -1
		}
	}
	if err := Complete(&st, named, r.User != ""); err != nil {
		return st, err
	}
	bytes := r.ReserveBytes
	if bytes == 0 {
		bytes = max(st.Limits.Disk, 0)
	}
	if bytes == 0 {
		bytes = defaultReserve
	}
	if bytes > 0 {
		st.Reserve = func(ctx context.Context) (func(), error) { return s.Reserve(ctx, st.Base, bytes) }
	}
	return st, nil
}

// choose sets what is one of some values, and verifies the environment.
func choose(st *step.Step, r *api.RunRequest) error {
	for i, e := range r.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return invalid(fmt.Sprintf("env has %q; it must be NAME=VALUE", e))
		}
		if HasName(r.Env[:i], name) {
			return invalid("env gives " + name + " twice")
		}
	}
	switch r.Runtime {
	case "", "native":
		st.Runtime = step.Native()
	case "runc":
		st.Runtime = step.Runc()
	default:
		return invalid(fmt.Sprintf("runtime is %q; it can be native or runc", r.Runtime))
	}
	switch r.Network {
	case api.Network_NETWORK_NONE:
	case api.Network_NETWORK_HOST:
		st.Network = step.NetworkHost
	default:
		return invalid(fmt.Sprintf("network is %d", r.Network))
	}
	if r.User != "" {
		var ok bool
		if st.User, ok = step.ParseUser(r.User); !ok {
			return invalid(fmt.Sprintf("user is %q; it must be USER or USER:GROUP, names or numbers", r.User))
		}
	}
	return nil
}

// ErrUser: the image of a base names a user that cannot be one.
var ErrUser = errors.New("the user is not USER or USER:GROUP")

// DefaultPath is PATH in a step if nothing says another.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Complete adds to a step what the image of its base says: environment, working directory, labels, and the user unless that
// is given. What the step has already counts more.
func Complete(s *step.Step, base snapshot.Info, hasUser bool) error {
	config, err := image.ConfigOf(base)
	if err != nil {
		return err
	}
	s.Labels = config.Labels() // not what the step says itself
	s.Env = slices.Clone(s.Env)
	for _, e := range append(config.Env, "PATH="+DefaultPath) {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && !HasName(s.Env, name) {
			s.Env = append(s.Env, e)
		}
	}
	if s.Dir == "" {
		s.Dir = config.Workdir
	}
	if !hasUser && config.User != "" {
		var ok bool
		if s.User, ok = step.ParseUser(config.User); !ok {
			return fmt.Errorf("base %s is for the user %q: %w", base.Name, config.User, ErrUser)
		}
	}
	return nil
}

// HasName tells whether an environment has a variable.
func HasName(env []string, name string) bool {
	return slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

// List implements api.StepsHandler.
func (s steps) List(context.Context, *connect.Request[api.ListStepsRequest]) (*connect.Response[api.ListStepsResponse], error) {
	return connect.NewResponse(&api.ListStepsResponse{Steps: s.activities()}), nil
}

func (s *Service) activities() []*api.Step {
	all := s.Runner.Activities()
	list := make([]*api.Step, 0, len(all))
	for _, a := range all {
		one := &api.Step{Serial: a.Serial, Id: a.ID.String(), State: api.Step_State(a.State), Base: a.Base, Command: a.Command,
			Queued: timestamp(a.Queued), Started: timestamp(a.Started), Ended: timestamp(a.Ended), Waiters: int32(a.Waiters), OutputBytes: a.Written,
			Hit: a.Hit, FetchedFrom: a.From, Snapshot: a.Result}
		if a.Err != nil {
			one.Error = a.Err.Error()
		}
		list = append(list, one)
	}
	return list
}

// Logs implements api.StepsHandler.
func (s steps) Logs(ctx context.Context, req *connect.Request[api.LogsRequest], stream *connect.ServerStream[api.LogsResponse]) error {
	w := outputWriter(func(b []byte) error { return stream.Send(&api.LogsResponse{Output: b}) })
	if req.Msg.Snapshot == "" {
		ctx, done := s.watching(ctx)
		defer done()
		err := s.Runner.Follow(ctx, req.Msg.Serial, w)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return coded(err)
	}
	id, ok := step.ParseSnapshot(req.Msg.Snapshot)
	if !ok {
		return invalid(fmt.Sprintf("snapshot %q is not the result of a step", req.Msg.Snapshot))
	}
	res, err := s.Runner.Recorded(id)
	if err != nil {
		return coded(err)
	}
	_, err = w.Write(res.Output)
	return coded(err)
}
