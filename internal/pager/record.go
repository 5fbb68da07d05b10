package pager

import (
	"crypto/rand"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// newRecord is the record of an opening that knows nothing yet, and the hashers
// of the leader. Without checksums nothing is recorded, each opening scans, and
// each commit takes two flushes. Nothing in a record is random: the same history
// makes the same file, once it is closed.
func (p *Pager) newRecord() {
	p.record = commit.Record{}
	var zero [16]byte
	var err error
	if p.record.Hasher, err = extension.NewHasher(zero); err != nil {
		p.logf("%s: %v: free pages are not recorded", p.file.Name(), err)
		return
	}
	l := &p.leader
	rand.Read(l.key[:])
	if l.metas, err = extension.NewHasher(zero); err == nil {
		l.pages, err = extension.NewHasher(l.key)
	}
	if err != nil {
		p.logf("%s: %v", p.file.Name(), err)
	}
}

// recorder records the free pages of one commit.
func (p *Pager) recorder() commit.Recorder {
	return commit.Recorder{Space: p.space, PageSize: p.pageSize, NoRoom: p.noRoom}
}

// readRecord reads what an extension records of the free pages of the state of m, from the disk. All runs are asked for
// before the first is waited for: there are up to nine, each somewhere else.
func (p *Pager) readRecord(ext *extension.Extension, m page.Meta) (*space.Space, commit.Record, error) {
	runs := newRuns(ext.Free)
	for _, r := range runs {
		if err := p.dropRun(r, m.HighWater); err != nil {
			return nil, commit.Record{}, err
		}
	}
	if len(runs) > 1 {
		for _, r := range runs {
			p.file.Prefetch(int64(r.Start)*int64(p.pageSize), int64(r.Bytes))
		}
	}
	return commit.ReadRecord(ext, m, p.pageSize, p.record.Hasher, p.readDropped)
}

// readRun reads what means something of a run, from the disk.
func (p *Pager) readRun(r extension.Run, high page.ID) ([]byte, error) {
	if err := p.dropRun(r, high); err != nil {
		return nil, err
	}
	return p.readDropped(r)
}

// dropRun looks whether there is such a run, and makes the next read of it one of the disk.
func (p *Pager) dropRun(r extension.Run, high page.ID) error {
	if err := r.Check(high, p.pageSize); err != nil {
		return err
	}
	return p.dropPages(r.Extent())
}

// readDropped reads a run after dropRun.
func (p *Pager) readDropped(r extension.Run) ([]byte, error) {
	b := make([]byte, r.Bytes)
	if _, err := p.file.ReadAt(b, int64(r.Start)*int64(p.pageSize)); err != nil {
		return nil, p.wrap("read a record of free pages of", err)
	}
	return b, nil
}
