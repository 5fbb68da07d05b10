package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"holdfast/command/cli"
	"holdfast/worker/step"
)

// secretUsage is how --secret is given.
const secretUsage = "id=NAME and src=FILE, src=- for standard input, or env=VARIABLE; further target=/PATH and mode=0400"

// secretsOf adds to a step what the flags --secret say. None is read yet.
func (f *stepFlags) secretsOf(s *step.Step) error {
	for _, text := range f.secrets {
		one, err := f.parseSecret(text)
		if err != nil {
			return err
		}
		s.Secrets = append(s.Secrets, one)
	}
	return nil
}

// parseSecret reads id=NAME,src=FILE[,target=PATH][,mode=MODE] and id=NAME,env=VARIABLE, in any order.
func (f *stepFlags) parseSecret(text string) (s step.Secret, err error) {
	fields, ok := fieldsOf(text, "id", "src", "env", "target", "mode")
	src, env := fields["src"], fields["env"]
	if !ok || fields["id"] == "" || (src == "") == (env == "") {
		return s, cli.Usagef("--secret is %q; it must be %s", text, secretUsage)
	}
	s.ID, s.Target = fields["id"], fields["target"]
	if mode := fields["mode"]; mode != "" {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil || n == 0 || n > 0o777 {
			return s, cli.Usagef("--secret is %q; its mode is %q, and must be one such as 0400", text, mode)
		}
		s.Mode = fs.FileMode(n)
	}
	switch {
	case env != "":
		s.Open, err = f.app.variable(env)
	case src == "-":
		s.Open, err = f.takeInput("--secret " + text)
	default:
		if src, err = f.hostPath("--secret "+text, src); err == nil {
			s.Open = func() (io.ReadCloser, error) { return os.Open(src) }
		}
	}
	return s, err
}

// takeInput takes the standard input for one flag.
func (f *stepFlags) takeInput(flag string) (func() (io.ReadCloser, error), error) {
	if f.inputOf != "" {
		return nil, cli.Usagef("%s and %s both read the standard input; give one of them a file", f.inputOf, flag)
	}
	f.inputOf = flag
	return func() (io.ReadCloser, error) { return io.NopCloser(f.stdin), nil }, nil
}

// readInput copies the standard input of a step that has one; nil if it has none.
func (c *call) readInput(f *stepFlags) (in *os.File, err error) {
	if !f.input {
		return nil, nil
	}
	if in, err = memoryFile("stdin"); err != nil {
		return nil, fmt.Errorf("memory for the standard input: %w", err)
	}
	copied := make(chan error, 1)
	go func() {
		n, err := io.Copy(in, io.LimitReader(f.stdin, step.MaxStdin+1))
		if err != nil {
			err = fmt.Errorf("standard input: %w", err)
		} else if n > step.MaxStdin {
			err = cli.Usagef("the standard input has more than %s; give it as a file, with --mount FILE:/TARGET:ro", cli.Size(step.MaxStdin))
		}
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-c.ctx.Done(): // what reads goes on until there is something to read
		return nil, context.Cause(c.ctx)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// variable has the value of a variable in the environment of who gave the command.
func (a *app) variable(name string) (open func() (io.ReadCloser, error), err error) {
	open = func() (io.ReadCloser, error) {
		value, err := a.lookupVariable(name)
		if err != nil {
			return nil, err
		}
		return &erased{*bytes.NewReader(value), value}, nil
	}
	value, err := a.lookupVariable(name)
	clear(value)
	return open, err
}

func (a *app) lookupVariable(name string) ([]byte, error) {
	missing := fmt.Errorf("the variable %s is not in the environment: set it, and export it", name)
	if a.pid == 0 {
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, missing
		}
		return []byte(value), nil
	}
	all, err := readErasing(fmt.Sprintf("/proc/%d/environ", a.pid))
	if err != nil {
		return nil, fmt.Errorf("the environment of the command: %w", err)
	}
	defer clear(all)
	for one := range bytes.SplitSeq(all, []byte{0}) {
		if value, ok := bytes.CutPrefix(one, []byte(name+"=")); ok {
			return bytes.Clone(value), nil
		}
	}
	return nil, missing
}

// readErasing reads a file of unknown size, and leaves no other copy of it in memory than that which it returns.
func readErasing(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, n := make([]byte, 1<<17), 0
	for {
		m, err := f.Read(b[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return b[:n], nil
		case err != nil:
			clear(b)
			return nil, err
		case n == len(b):
			more := make([]byte, 2*len(b))
			copy(more, b)
			clear(b)
			b = more
		}
	}
}

// erased is the value of a variable, which is not in the memory of this process any longer than it is read.
type erased struct {
	bytes.Reader
	value []byte
}

// Close erases it.
func (e *erased) Close() error {
	clear(e.value)
	return nil
}

// fieldsOf reads NAME=VALUE,... with these names, each once.
func fieldsOf(text string, names ...string) (fields map[string]string, ok bool) {
	fields = map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if _, twice := fields[name]; twice || value == "" || !slices.Contains(names, name) {
			return fields, false
		}
		fields[name] = value
	}
	return fields, true
}
