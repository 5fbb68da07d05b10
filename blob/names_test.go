package blob_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// TestNames: blobs are found by the beginnings of the digests of their whole content, whatever their number of
// leaves and the hash of the store, and DigestOf gives these back.
func TestNames(t *testing.T) {
	for _, algorithm := range []blob.Algorithm{blob.SHA256, blob.BLAKE3} {
		db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucket([]byte("store"))
			if err != nil {
				return err
			}
			s, err := blob.Create(b, blob.Options{Algorithm: algorithm, LeafSize: blob.MinLeafSize})
			if err != nil {
				return err
			}
			for users, content := range [][]byte{{}, []byte("one leaf"), bytes.Repeat([]byte("several leaves "), 1000)} {
				sum := sha256.Sum256(content)
				var ref blob.Ref
				for i := range users + 1 {
					in, err := s.Ingest(fmt.Sprint("in", i), blob.IngestOptions{WholeDigest: true})
					if err != nil {
						return err
					}
					if _, err := in.Write(content); err != nil {
						return err
					}
					if ref, err = in.Commit(); err != nil {
						return err
					}
				}
				if n, err := s.Users(ref); n != uint64(users+1) || err != nil {
					t.Errorf("%v, %d bytes: %d users, %v", algorithm, len(content), n, err)
				}
				if got, ok, err := s.DigestOf(ref); got != sum || !ok || err != nil {
					t.Errorf("%v, %d bytes: digest %x, %v, %v", algorithm, len(content), got, ok, err)
				}
				text := fmt.Sprintf("%x", sum)
				for _, prefix := range []string{text, text[:8], text[:9]} {
					if found, err := s.Find(prefix); len(found) != 1 || found[0] != ref || err != nil {
						t.Errorf("%v, %d bytes: %s finds %v, %v", algorithm, len(content), prefix, found, err)
					}
				}
			}
			if found, err := s.Find("0000000"); len(found) > 0 || err != nil {
				t.Errorf("found %v, %v", found, err)
			}
			for _, bad := range []string{"xyz", "0g", fmt.Sprintf("%066x", 1)} {
				if _, err := s.Find(bad); !errors.Is(err, blob.ErrInvalidRef) {
					t.Errorf("%q: %v", bad, err)
				}
			}
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
