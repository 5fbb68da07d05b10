package repair

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
)

const abandonHelp = `Make the meta pages name no list of free pages, so that it is made anew by looking
at all pages that are in use: when the list is damaged, or wrong.

The copy does not record what the checksums of all pages add up to, so check cannot tell
stale pages in it; "holdfast reseal" records it again.`

const rebuildHelp = `Look at all pages that are in use, and write the list of the others as a freelist
page, which spares bbolt the same at each opening. The file must have none; the
command abandon makes a copy without one.

Pages in use must be sound: a page below a damaged one would be taken for free.`

func newFreelistAbandon(a *cli.App) *cobra.Command {
	return newOperation(a, operation{
		use: "abandon", short: "Give up the list of free pages", long: abandonHelp,
		look: needState,
		do:   (*surgeon).loseFree,
		stock: func(s *surgeon) {
			fmt.Fprintln(s.Out, "The freelist was abandoned in both meta pages.")
			fmt.Fprintln(s.Out, "The next opening for writing looks for the free pages, which takes a scan.")
		},
	})
}

func newFreelistRebuild(a *cli.App) *cobra.Command {
	return newOperation(a, operation{
		use: "rebuild", short: "Make the list of free pages anew", long: rebuildHelp,
		look: func(c *cli.Call, p *patient) error {
			if err := needState(c, p); err != nil {
				return err
			}
			ext, err := p.extension()
			if err != nil || ext != nil && ext.Trailing != nil { // the newest state has none
				return err
			}
			return p.noFreelist()
		},
		do:    (*surgeon).rebuild,
		stock: func(s *surgeon) { fmt.Fprintln(s.Out, "The freelist was successfully rebuilt.") },
	})
}

// noFreelist is an error if the newest state names a freelist page.
func (p *patient) noFreelist() error {
	if p.slots.Meta[p.best].Freelist != page.NoFreelist {
		return cli.ErrSurgeryFreelistAlreadyExist
	}
	return nil
}

// rebuild lets the engine find the free pages and write a freelist page.
func (s *surgeon) rebuild() error {
	if err := needState(s.Call, s.patient); err != nil {
		return err
	}
	if err := s.noFreelist(); err != nil {
		return err
	}
	// Nothing of Holdfast's is left after the metas, so that no record is believed.
	if err := s.forgetFree(); err != nil {
		return err
	}
	stop := s.Progress("looking at the pages in use", 0, nil)
	db, err := s.OpenMade(s.file.Name(), s.r.Output, &holdfast.Options{})
	if err == nil {
		bridge.LeaveFreelist(db.DB)
		err = db.Close()
	}
	stop()
	if err != nil {
		return err
	}
	if s.patient, err = examine(s.file); err != nil {
		return err
	}
	if s.err != nil || s.noFreelist() == nil {
		return &cli.FileError{File: s.r.Output, What: "no freelist page could be written", Next: "see whether its disk has room", Err: errNoFreelist}
	}
	m := s.slots.Meta[s.best]
	s.r.FreelistAbandoned = false
	s.r.Pages = []uint64{uint64(s.best), uint64(m.Freelist)}
	s.r.did("the list of free pages was made anew and is in page %d", m.Freelist)
	return nil
}
