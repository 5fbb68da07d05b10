package pager

import (
	"crypto/rand"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
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

// readRun reads what means something of a run, from the disk.
func (p *Pager) readRun(r extension.Run, high page.ID) ([]byte, error) {
	if err := r.Check(high, p.pageSize); err != nil {
		return nil, err
	}
	if err := p.dropPages(r.Extent()); err != nil {
		return nil, err
	}
	b := make([]byte, r.Bytes)
	if _, err := p.file.ReadAt(b, int64(r.Start)*int64(p.pageSize)); err != nil {
		return nil, p.wrap("read a record of free pages of", err)
	}
	return b, nil
}
