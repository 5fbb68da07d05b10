package blob

import (
	"crypto/sha256"
	"testing"
)

// TestAppendStored makes a blob anew of the chunks that are stored of it: of leaves and, unless all of it has to be read, of
// nodes. The SHA-256 of the whole is computed all the same.
func TestAppendStored(t *testing.T) {
	for _, o := range small {
		for _, mode := range []string{"", "digest", "verify"} {
			t.Run(o.String()+mode, func(t *testing.T) {
				db := newStore(t, o)
				content := random(1, 300<<10)
				update(t, db, func(s *Store) {
					ref := must2(s.Put(content))
					s.VerifyStored(mode == "verify")
					options := IngestOptions{Size: ref.Size()}
					if mode == "digest" {
						options.Digest = sha256.Sum256(content)
					}
					in := must2(s.Ingest("again", options))
					nodes := appendTree(t, s, in, ref.Root())
					if (nodes > 0) != (mode == "") {
						t.Errorf("%d nodes were appended as they are", nodes)
					}
					must(t, in.Save())
					if again := must2(in.Commit()); again != ref {
						t.Errorf("%v, not %v", again, ref)
					}
					if users, err := s.Users(ref); err != nil || users != 2 {
						t.Errorf("%d users, %v", users, err)
					}
				})
			})
		}
	}
}

// appendTree appends a chunk, or what is below it, and gives how many nodes were appended as they are.
func appendTree(t *testing.T, s *Store, in *Ingest, c Chunk) (nodes int) {
	t.Helper()
	ok, err := in.AppendStored(c)
	must(t, err)
	switch {
	case ok && c.Level > 0:
		return 1
	case ok:
		return 0
	case c.Level == 0:
		t.Fatalf("leaf %v cannot be appended", c.Address)
	}
	p, err := s.Chunk(c.Address, c.Level)
	must(t, err)
	v, err := s.Options().VerifyChunk(c, append([]byte(nil), p...))
	must(t, err)
	for _, child := range v.Children() {
		nodes += appendTree(t, s, in, child)
	}
	return nodes
}
