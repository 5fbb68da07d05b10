package command

import (
	"fmt"
	"time"

	"holdfast/command/cli"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// held are the results that are held for the next step on them.
type held struct {
	Results int64     `json:"results"`
	Bytes   int64     `json:"bytes"` // without what they stand on
	Until   time.Time `json:"until,omitzero"`
}

// heldResults are those of a namespace, but for some names.
func (c *call) heldResults(t *snapshot.Namespace, but map[string]bool) (h held, err error) {
	err = t.Leased(c.ctx, step.HoldLease, func(i snapshot.Info, l snapshot.Held) bool {
		if but[i.Name] {
			return true
		}
		h.Results++
		h.Bytes += i.Usage.Size
		if l.Expires.After(h.Until) {
			h.Until = l.Expires
		}
		return true
	})
	return h, err
}

// sayHeld says that there are such results, if there are.
func (c *call) sayHeld(h held) {
	switch {
	case h.Results == 1:
		fmt.Fprintf(c.out, "%s stays, held %s; with --held it can go\n", h, h.lasts())
	case h.Results > 1:
		fmt.Fprintf(c.out, "%s stay, held %s; with --held they can go\n", h, h.lasts())
	}
}

// String says how many, and how much.
func (h held) String() string {
	return cli.Plural(int(h.Results), "result") + " with " + cli.Size(h.Bytes)
}

// lasts says for what they are held, and for how long.
func (h held) lasts() string {
	them := "them"
	if h.Results == 1 {
		them = "it"
	}
	return "for the next step on " + them + ", until " + timeText(h.Until) + " at most"
}

// held says what of the store waits for its next step.
func (d *checkup) held(s *snapshot.Store) {
	t, err := s.Namespace(DefaultNamespace)
	if err != nil {
		return
	}
	if h, err := d.heldResults(t, nil); err == nil && h.Results > 0 { // df tells of the error
		d.add("Store", "held results", stateOK, h.String()+", held "+h.lasts()+"; pruning heeds it, unless a step needs room", "")
	}
}
