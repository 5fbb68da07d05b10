package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/salvage"
)

// salvageBatch is how many bytes a transaction of the copy takes.
const salvageBatch = 8 << 20

// salvageSink puts what is saved into a database, in transactions of some MiB. Of an
// interruption nothing is kept, so nothing is flushed before the end.
type salvageSink struct {
	ctx   context.Context
	open  func(pageSize int) (*holdfast.DB, error)
	db    *holdfast.DB
	tx    *holdfast.Tx
	n     int // of the transaction
	bytes int
	saved cli.Contents

	pageSize int // of the database, which need not be that of the damaged one
}

// salvageHandle is a bucket as one transaction has it.
type salvageHandle struct {
	bucket *holdfast.Bucket
	tx     int
}

// Begin opens the database.
func (s *salvageSink) Begin(pageSize int) (err error) {
	if s.db, err = s.open(pageSize); err == nil {
		s.pageSize = s.db.Info().PageSize
	}
	return err
}

// close ends the database, with what is in the last transaction if all went well.
func (s *salvageSink) close(ok bool) (err error) {
	if s.db == nil {
		return nil
	}
	if ok {
		err = s.commit()
	} else if s.tx != nil {
		err = s.tx.Rollback()
	}
	return errors.Join(err, cli.CloseMade(s.db, ok && err == nil))
}

// container opens p in the transaction.
func (s *salvageSink) container(p *salvage.Place) (cli.Container, error) {
	if p.Parent == nil {
		return cli.Container{Tx: s.tx}, nil
	}
	if h, ok := p.Handle.(salvageHandle); ok && h.tx == s.n {
		return cli.Container{Tx: s.tx, Bucket: h.bucket}, nil
	}
	parent, err := s.container(p.Parent)
	if err != nil {
		return parent, err
	}
	b := parent.Child(p.Name)
	if b == nil {
		return parent, fmt.Errorf("a bucket that was made is not there: %w", s.tx.Err())
	}
	p.Handle = salvageHandle{b, s.n}
	return cli.Container{Tx: s.tx, Bucket: b}, nil
}

// room begins a transaction if there is none, or the one there is has enough.
func (s *salvageSink) room(n int) (err error) {
	if s.tx != nil && s.bytes > salvageBatch {
		if err := s.commit(); err != nil {
			return err
		}
	}
	if s.tx == nil {
		s.n++
		s.bytes = 0
		if s.tx, err = s.db.Begin(true); err != nil {
			return err
		}
	}
	s.bytes += n + 64
	return nil
}

func (s *salvageSink) commit() error {
	if s.tx == nil {
		return nil
	}
	tx := s.tx
	s.tx = nil
	if err := s.ctx.Err(); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// Bucket makes a bucket unless it is there.
func (s *salvageSink) Bucket(p *salvage.Place) (bool, error) {
	if err := s.room(len(p.Name)); err != nil {
		return false, err
	}
	parent, err := s.container(p.Parent)
	if err != nil {
		return false, err
	}
	b := parent.Child(p.Name)
	if b == nil && parent.Bucket != nil && parent.Get(p.Name) != nil {
		return false, nil
	}
	if b == nil {
		if b, err = parent.Create(p.Name); err == nil {
			err = b.SetSequence(p.Sequence)
		}
		if err != nil {
			return false, err
		}
		s.saved.Buckets++
	}
	p.Handle = salvageHandle{b, s.n}
	return true, nil
}

// Put puts a key unless there is one.
func (s *salvageSink) Put(p *salvage.Place, key, value []byte) (salvage.Outcome, error) {
	if err := s.room(len(key) + len(value)); err != nil {
		return 0, err
	}
	b, err := s.container(p)
	if err != nil {
		return 0, err
	}
	switch old := b.Get(key); {
	case old != nil && bytes.Equal(old, value):
		return salvage.Same, nil
	case old != nil || b.Bucket.Bucket(key) != nil:
		return salvage.Other, nil
	}
	s.saved.Keys++
	return salvage.Saved, b.Put(key, value)
}

// Fresh is a name that no bucket at the top level has.
func (s *salvageSink) Fresh(name string) (string, error) {
	if err := s.room(0); err != nil {
		return "", err
	}
	free := name
	for i := 2; s.tx.Bucket([]byte(free)) != nil; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free, s.tx.Err()
}
