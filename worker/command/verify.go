package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newVerify) }

// digestsUsage is of the flag of commands that commit.
const digestsUsage = "keep a digest of what is made, for holdfastd verify; the command ends when it is computed"

const verifyHelp = `Read the content of committed snapshots from the disk and compare it with the digests that
are kept of them. One that is named and has no digest yet gets one. Without names: all
snapshots that have a digest, those that were not verified for the longest time first.

What is made from a damaged snapshot cannot be used any more, until the content is put
back and verified, or the snapshot is removed. Snapshots below those named are not read.`

func (a *app) newVerify() *cobra.Command {
	var rate int64
	cmd := &cobra.Command{
		Use: "verify [NAME...]", Short: "Compare snapshots with their digests", Long: verifyHelp,
		RunE: a.action(func(c *call) error { return c.verify(rate) }), ValidArgsFunction: a.completeSnapshots(-1),
	}
	a.namespaceFlag(cmd, cmd.Flags())
	cli.SizeRangeVar(cmd.Flags(), &rate, "rate", 0, 1, 1<<62, "read at most that many bytes in a second, such as 50MB; without names only")
	return cmd
}

// verifyReport is what was found of one snapshot, or of all.
type verifyReport struct {
	Verified int      `json:"verified"`
	Digests  int      `json:"digests"` // that were made
	Failed   int      `json:"failed"`
	Damaged  []string `json:"damaged"`
}

func (c *call) verify(rate int64) error {
	if rate > 0 && len(c.args) > 0 {
		return cli.Usagef("--rate is for all snapshots; leave the names out")
	}
	r := verifyReport{Damaged: []string{}}
	err := c.withStore(false, func(t *snapshot.Namespace) error {
		stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "verifying", Step: cli.ProgressStep}.Start()
		defer stop()
		if len(c.args) == 0 {
			return c.interruptedAfter(c.scrub(t.Store(), rate, &r), "the next run begins with what was not looked at")
		}
		for _, name := range c.args {
			if err := c.verifyOne(t, name, &r); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && c.json {
		err = cli.PrintJSON(c.out, r)
	} else if err == nil {
		c.printVerified(&r)
	}
	if err == nil && len(r.Damaged)+r.Failed > 0 {
		err = errSaid
	}
	return err
}

func (c *call) scrub(s *snapshot.Store, rate int64, r *verifyReport) error {
	p, err := s.Scrub(c.ctx, snapshot.ScrubOptions{Rate: rate})
	r.Verified, r.Digests, r.Failed = p.Looked-len(p.Damaged), p.Digests, p.Failed
	for _, d := range p.Damaged {
		r.Damaged = append(r.Damaged, d.Name)
	}
	return err
}

func (c *call) verifyOne(t *snapshot.Namespace, name string, r *verifyReport) error {
	info, err := c.find(t, name)
	if err != nil {
		return err
	}
	if info.Kind == snapshot.View { // a base is a name for what is below it
		if below, err := image.Resolve(c.ctx, t, info.Name); err == nil {
			info = below
		}
	}
	err = t.Verify(c.ctx, info.Name)
	switch {
	case errors.Is(err, snapshot.ErrNoDigest):
		r.Digests++
		_, err = t.Digest(c.ctx, info.Name)
	case errors.Is(err, snapshot.ErrDamaged):
		r.Damaged = append(r.Damaged, info.Name)
		return nil
	case err == nil:
		r.Verified++
	}
	return err
}

func (c *call) printVerified(r *verifyReport) {
	if len(c.args) == 0 && r.Verified+r.Digests+r.Failed+len(r.Damaged) == 0 {
		fmt.Fprintln(c.out, "no snapshot has a digest: name some, which then get one, or give --digests to import and step")
		return
	}
	for _, name := range r.Damaged {
		fmt.Fprintf(c.out, "damaged: %s\n", printable(name))
	}
	fmt.Fprintf(c.out, "%s verified", cli.Plural(r.Verified, "snapshot"))
	for _, of := range []struct {
		n    int
		what string
	}{{r.Digests, "got a digest"}, {len(r.Damaged), "damaged"}, {r.Failed, "could not be read"}} {
		if of.n > 0 {
			fmt.Fprintf(c.out, ", %d %s", of.n, of.what)
		}
	}
	fmt.Fprintln(c.out)
}
