package content

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"holdfast"
	"holdfast/blob"
)

// Info is what a Store knows of content.
type Info struct {
	Digest  digest.Digest // SHA-256
	Size    int64         // bytes
	Created time.Time     // UTC
	Updated time.Time     // by Commit or Update
	Labels  map[string]string
}

// Status is how far content has been written.
type Status struct {
	Ref      string
	Offset   int64         // bytes that were written
	Total    int64         // bytes that there will be; 0: not known
	Expected digest.Digest // that it will have; "": not known
	Started  time.Time     // UTC
	Updated  time.Time     // by the last write
}

// Expected is what content will be. Both may be left out.
type Expected struct {
	Size   int64 // bytes; 0: any
	Digest digest.Digest
}

// Limits on names and labels.
const (
	maxRef    = 4096      // bytes
	maxLabels = 256 << 10 // bytes of all labels of one content together
)

// infoRecord is the value of a digest.
type infoRecord struct {
	Blob    blob.Ref          `json:"blob"`
	Size    int64             `json:"size"`
	Created time.Time         `json:"created"`
	Updated time.Time         `json:"updated"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// ingestRecord is the value of a ref.
type ingestRecord struct {
	Size    int64     `json:"size"`   // that were written
	Hash    []byte    `json:"sha256"` // state of the hash after them
	Total   int64     `json:"total,omitempty"`
	Want    string    `json:"want,omitempty"`
	Started time.Time `json:"started"`
	Updated time.Time `json:"updated"`
}

// parseInfo reads the record of content. If that is damaged, the blob is what it says still, or zero.
func parseInfo(sum [32]byte, v []byte) (info Info, ref blob.Ref, err error) {
	var r infoRecord
	d := sumDigest(sum)
	if err = json.Unmarshal(v, &r); err == nil && r.Blob.IsZero() {
		err = errors.New("it names no blob")
	}
	if err == nil && r.Size != r.Blob.Size() {
		err = fmt.Errorf("%d bytes, and a blob of %d", r.Size, r.Blob.Size())
	}
	if err != nil {
		return Info{}, r.Blob, corruptf("%s: %v", d, err)
	}
	return Info{Digest: d, Size: r.Size, Created: r.Created, Updated: r.Updated, Labels: r.Labels}, r.Blob, nil
}

// putIngest writes the record of what is being written.
func putIngest(tx *holdfast.Tx, ref string, r *ingestRecord) error {
	v, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketIngests).Put([]byte(ref), v)
}

// ingestName is the name that the blob.Store knows a ref by: it takes shorter ones only.
func ingestName(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:])
}

// record is the value of content.
func (i *Info) record(ref blob.Ref) ([]byte, error) {
	return json.Marshal(infoRecord{Blob: ref, Size: i.Size, Created: i.Created, Updated: i.Updated, Labels: i.Labels})
}

// parseIngest reads the record of what is being written.
func parseIngest(name, v []byte) (r ingestRecord, err error) {
	if err = json.Unmarshal(v, &r); err == nil && (r.Size < 0 || r.Total < 0) {
		err = fmt.Errorf("%d bytes of %d", r.Size, r.Total)
	}
	if err == nil && r.Want != "" {
		_, err = digestSum(digest.Digest(r.Want))
	}
	if err != nil {
		return ingestRecord{}, corruptf("ref %q: %v", name, err)
	}
	return r, nil
}

func (r *ingestRecord) status(ref string) Status {
	return Status{Ref: ref, Offset: r.Size, Total: r.Total, Expected: digest.Digest(r.Want), Started: r.Started, Updated: r.Updated}
}

// digestSum is the hash in a digest; ErrInvalid of all but SHA-256.
func digestSum(d digest.Digest) (sum [32]byte, err error) {
	if err := d.Validate(); err != nil {
		return sum, fmt.Errorf("%w: digest %.100q: %w", ErrInvalid, string(d), err)
	}
	if d.Algorithm() != digest.SHA256 {
		return sum, fmt.Errorf("%w: digest %s: only sha256 is supported", ErrInvalid, d)
	}
	for i := range sum { // Validate has seen to it that these are the right ones
		sum[i] = nibble(d.Encoded()[2*i])<<4 | nibble(d.Encoded()[2*i+1])
	}
	return sum, nil
}

func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func sumDigest(sum [32]byte) digest.Digest { return digest.NewDigestFromBytes(digest.SHA256, sum[:]) }

// checkRef refuses a ref that is no name, or that no message to a client could have.
func checkRef(ref string) error {
	if ref == "" || len(ref) > maxRef {
		return fmt.Errorf("%w: a ref of %d bytes; it has 1 to %d", ErrInvalid, len(ref), maxRef)
	}
	if !utf8.ValidString(ref) {
		return fmt.Errorf("%w: a ref that is not UTF-8", ErrInvalid)
	}
	return nil
}

// checkLabels refuses labels that take too much, or that a record cannot have.
func checkLabels(labels map[string]string) error {
	n := 0
	for k, v := range labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: label %.100q is not UTF-8", ErrInvalid, k)
		}
		n += len(k) + len(v)
	}
	if n > maxLabels {
		return fmt.Errorf("%w: labels of %d bytes; at most %d", ErrInvalid, n, maxLabels)
	}
	return nil
}

// relabel changes labels as fields say: all of them, or "labels" or "labels.KEY" only.
func (i *Info) relabel(to map[string]string, fields []string) error {
	if len(fields) == 0 {
		fields = []string{"labels"}
	}
	for _, field := range fields {
		key, one := strings.CutPrefix(field, "labels.")
		switch {
		case one && to[key] != "":
			if i.Labels == nil {
				i.Labels = make(map[string]string)
			}
			i.Labels[key] = to[key]
		case one:
			delete(i.Labels, key)
		case field == "labels":
			i.Labels = make(map[string]string, len(to))
			for k, v := range to {
				if v != "" {
					i.Labels[k] = v
				}
			}
		default:
			return fmt.Errorf("%w: %q cannot be updated", ErrInvalid, field)
		}
	}
	return checkLabels(i.Labels)
}
