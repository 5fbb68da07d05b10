package command

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"holdfast/command/cli"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// withRunner opens the store, the manager of mounts and a Runner with options, for as long as fn runs.
func (c *call) withRunner(o step.Options, mounts []step.Mount, fn func(*snapshot.Namespace, *step.Runner) error) error {
	return c.withStore(false, func(t *snapshot.Namespace) (err error) {
		if c.shared != nil {
			return fn(t, c.shared.runner)
		}
		m, err := c.openMountsFor(t.Store(), mounts)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), closeTime)
			defer cancel()
			err = errors.Join(err, m.Close(ctx))
			// What a failed step has made is deleted now, and not by the next command. That it could not be is logged.
			if totals, e := t.Store().Totals(ctx); e == nil && totals.Trash > 0 {
				_ = t.Store().Cleanup(ctx)
			}
		}()
		o.Namespace, o.Mounts, o.Full, o.Logger = t, m, c.giveUp(c.room), c.logger()
		r, err := step.New(c.ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		return fn(t, r)
	})
}

// stepUnmount is how long the mount of a command that has ended may be in use until its result is given up.
// On a machine with much to do the kernel can take seconds to end what was killed.
const stepUnmount = 15 * time.Second

// openMountsFor opens the manager of mounts for steps that see so much of the machine.
func (c *call) openMountsFor(s *snapshot.Store, mounts []step.Mount) (*mount.Manager, error) {
	o, err := c.mountOptions()
	if err != nil {
		return nil, err
	}
	o.ParkAfter = stepUnmount
	o.Cgroups = step.Cgroups(step.DefaultCgroup(o.Keep[0]))
	for _, m := range mounts {
		if m.Source != "" {
			o.Keep = append(o.Keep, m.Source)
		}
	}
	return mount.Open(c.ctx, o)
}

// stepReport is what a step has given.
type stepReport struct {
	ID           string    `json:"id"`
	Snapshot     string    `json:"snapshot"` // "": there is no result
	Hit          bool      `json:"hit"`
	From         string    `json:"fetched_from"` // the repository that it was fetched from just now; "": none
	ExitCode     int       `json:"exit_code"`
	Reason       string    `json:"reason"` // why there is no result
	Output       string    `json:"output"`
	OutputBase64 string    `json:"output_base64"` // in place of output, if that is not text
	OutputBytes  int64     `json:"output_bytes"`  // that were written; what is kept can be less
	Created      time.Time `json:"created,omitzero"`
	Milliseconds float64   `json:"milliseconds"`         // of this call, without opening and closing the store
	CommandTime  float64   `json:"command_milliseconds"` // of the command, when it was run
	UserTime     float64   `json:"user_milliseconds"`
	SystemTime   float64   `json:"system_milliseconds"`
	Memory       int64     `json:"memory_bytes"` // 0: not known
	Uncached     string    `json:"uncached"`     // why the same step would be run again; "": it would not
	Next         string    `json:"next"`         // what may help a step that has failed; ""

	adopted bool
	err     error
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// hasResult tells whether nothing is going to be run. Sources are read for it that are not known yet, or
// were changed, which takes as long as they are large.
func (c *call) hasResult(r *step.Runner, s step.Step) bool {
	defer cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "reading sources", Step: cli.ProgressStep}.Start()()
	_, err := r.Lookup(c.ctx, s)
	return err == nil
}

// runStep runs a step. That it has no result is not an error here.
func (c *call) runStep(t *snapshot.Namespace, r *step.Runner, s step.Step, f *stepFlags) (*stepReport, error) {
	var log io.Writer = cli.Output{W: c.cmd.OutOrStdout()}
	if c.json {
		log = nil // it is part of the JSON
	}
	begun := time.Now()
	if !c.hasResult(r, s) {
		base := s.Base
		s.Reserve = func(ctx context.Context) (func(), error) {
			own := *c
			own.ctx = ctx // others may want it longer than this command
			return own.reserve(t, base, f.reservation(s.Limits), f)
		}
	}
	res, err := r.Run(c.ctx, s, log)
	report := &stepReport{Milliseconds: milliseconds(time.Since(begun))}
	var failure *step.Failure
	switch {
	case err == nil:
		report.ID, report.Snapshot, report.Hit, report.ExitCode = res.ID.String(), res.Snapshot, res.Hit, res.Code
		report.Uncached, report.From = res.Uncached, res.From
		report.Created, report.CommandTime, report.adopted = res.Created, milliseconds(res.Duration), res.Adopted
		report.put(res.Output, res.OutputSize, res.Usage)
	case errors.As(err, &failure) && !errors.Is(err, step.ErrCanceled):
		report.ID, report.ExitCode, report.Reason, report.err = failure.ID.String(), failure.Code, failure.Reason.Error(), err
		if report.ExitCode == 0 { // it ended well, with more than it may leave
			report.ExitCode = exitOwn
		}
		report.CommandTime = milliseconds(failure.Duration)
		report.put(failure.Output, failure.OutputSize, failure.Usage)
		report.Next = nextOf(&s, failure)
	case s.NewPrivileges && errors.Is(err, errors.ErrUnsupported):
		return nil, &nextError{err, "holdfastd doctor says why there is none; --runtime runc does without"}
	default:
		return nil, err
	}
	return report, nil
}

func (r *stepReport) put(output []byte, size int64, u step.Usage) {
	if utf8.Valid(output) {
		r.Output = string(output)
	} else {
		r.OutputBase64 = base64.StdEncoding.EncodeToString(output)
	}
	r.OutputBytes, r.UserTime, r.SystemTime, r.Memory = size, milliseconds(u.User), milliseconds(u.System), u.Memory
}

// reportStep says what became of a step.
func (c *call) reportStep(r *stepReport, quiet bool) error {
	if c.json {
		if err := cli.PrintJSON(c.out, r); err != nil {
			return err
		}
	}
	if r.err != nil {
		if c.json {
			return &exitError{code: r.ExitCode}
		}
		err := fmt.Errorf("%w (after %.1f ms; nothing is kept)", r.err, r.Milliseconds)
		if r.Next != "" {
			err = &nextError{err, r.Next}
		}
		return &exitError{r.ExitCode, err}
	}
	if c.json || quiet {
		return nil
	}
	w := c.cmd.ErrOrStderr()
	switch {
	case r.adopted:
		fmt.Fprintf(w, "hit %s in %.1f ms; made %s, what it wrote is lost\n", r.Snapshot, r.Milliseconds, ago(r.Created))
	case r.From != "":
		fmt.Fprintf(w, "fetched %s from %s in %.1f ms; the command took %.1f ms there\n", r.Snapshot, printable(r.From), r.Milliseconds, r.CommandTime)
	case r.Hit:
		fmt.Fprintf(w, "hit %s in %.1f ms; made %s, the command took %.1f ms\n", r.Snapshot, r.Milliseconds, ago(r.Created), r.CommandTime)
	default:
		why := ""
		if r.Uncached != "" {
			why = "; not cached: " + printable(r.Uncached)
		}
		fmt.Fprintf(w, "ran %s in %.1f ms; the command took %.1f ms%s\n", r.Snapshot, r.Milliseconds, r.CommandTime, why)
	}
	return nil
}

// ago is a time in the past, for people.
func ago(t time.Time) string { return strings.Replace(humanize.Time(t), "now", "just now", 1) }
