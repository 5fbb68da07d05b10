package commit

import (
	"holdfast/internal/page"
)

// Group is what one leader writes, with one meta. It is written without the lock.
type Group[T Member] struct {
	Members  []T        // transactions, oldest first
	Barriers []T        // requests that all be durable
	Mode     Durability // what the most careful one wants
	Plain    bool       // a plain meta is wanted
	Even     bool       // and a losing slot that needs no page past the state's
	Anew     bool       // and a meta even if the newest one is plain

	// What Env.Form sets, when the group is formed.
	Slot      int        // to write
	Label     page.Label // of the meta
	Strict    bool       // all metas are plain
	Trailing  bool       // the newest durable meta is trailing
	Visible   bool       // a newer state than the durable one is current, whose meta is in the slot
	Unflushed bool       // commits are current that were not flushed

	// What became of it.
	WroteMeta bool
	Names     bool // the meta is trailing: it names the state
	Absorbed  bool // what was visible became durable before that, in the slot before
	Unwritten bool // there was no room for the meta, and the slot is as it was
	flushed   bool
}

// Newest is the newest member; false if there are barriers only.
func (g *Group[T]) Newest() (newest T, ok bool) {
	if n := len(g.Members); n > 0 {
		return g.Members[n-1], true
	}
	return newest, false
}

// write writes a group, as durably as it must be. If it returns an error and
// the number of a transaction, the pages of that one, and perhaps of later ones,
// could not be written, and nothing refers to those of the earlier ones. After an
// error of a flush or of the meta the writer is stopped, unless the group is unwritten.
func (p *Pipeline[T]) write(g *Group[T]) (failed page.TxID, err error) {
	if err := p.env.Stopped(); err != nil {
		return 0, err
	}
	if len(g.Members) > 0 && g.Mode == Full && g.Members[0].entry().Mode != Full {
		// The first member did not ask for a flush, and so has not looked when it was prepared.
		if err := p.env.CheckLength(); err != nil {
			return 0, err
		}
	}
	if g.Mode != None && g.Unflushed {
		// Commits that were not flushed may have given pages away that the newest
		// durable state uses, so they must be durable before these are written.
		if err := p.flush(g); err != nil {
			return 0, err
		}
	}
	if len(g.Members) == 0 {
		return 0, p.makeDurable(g)
	}
	if failed, err = p.env.WritePages(g); err != nil {
		return failed, err
	}
	return 0, p.writeMeta(g)
}

// makeDurable is what a barrier asks for when there is nothing to commit: that the newest
// state be durable. If it is, that bbolt find it.
func (p *Pipeline[T]) makeDurable(g *Group[T]) error {
	switch {
	case (g.Trailing && g.Plain || g.Even || g.Anew) && !g.Visible:
		return p.writePlain(g)
	case g.flushed:
		return nil
	}
	return p.flush(g)
}

// writeMeta ends the group: what was written becomes the newest state. With one
// flush if it can be; with two if bbolt is to find the newest state after a
// crash, or if there is no room to list what was written; with none if no member
// wants one now.
func (p *Pipeline[T]) writeMeta(g *Group[T]) error {
	if g.Mode == None {
		return p.writePlain(g)
	}
	if !g.Strict && !g.Plain {
		if fits, err := p.put(g, true); fits || err != nil {
			return err
		}
	}
	if g.Mode == Periodic {
		if err := p.env.CheckLength(); err != nil {
			return err
		}
	}
	g.Mode = Full
	if err := p.flush(g); err != nil {
		return err
	}
	if g.Visible {
		// It is durable now, in the slot that this group was to write: the other one
		// is the loser.
		g.Absorbed = true
		g.Slot, g.Label = 1-g.Slot, g.Label+1
	}
	return p.writePlain(g)
}

// writePlain writes a meta of the group's own state.
func (p *Pipeline[T]) writePlain(g *Group[T]) error {
	_, err := p.put(g, false)
	return err
}

// put writes the meta page and, if the group is to be durable, flushes. A failure
// leaves it open what the disk holds, so it stops the writer, unless the group is
// unwritten.
func (p *Pipeline[T]) put(g *Group[T], trailing bool) (fits bool, err error) {
	fits, err = p.env.WriteMeta(g, trailing)
	if err != nil {
		g.Unwritten = p.env.Stopped() == nil
		return fits, err
	}
	if !fits {
		return false, nil
	}
	g.WroteMeta, g.Names = true, trailing
	if g.Mode != Full {
		return true, nil
	}
	return true, p.flush(g)
}

func (p *Pipeline[T]) flush(g *Group[T]) error {
	g.flushed = true
	return p.env.Flush()
}
