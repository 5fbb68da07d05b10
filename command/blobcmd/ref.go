package blobcmd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
)

// minPrefix is how many digits of a digest name a blob at least.
const minPrefix = 7

// maxRoots bounds the blobs that are looked at for one like that which was not found.
const maxRoots = 1000

// refName is how the command line names a blob.
type refName struct {
	text      string
	algorithm string // "": not given
	tree      bool   // the digits are of the address of a tree
	digits    string
}

// algorithms are the names with which a digest can begin.
var algorithms = []string{blob.SHA256.String(), blob.BLAKE3.String(), blob.KeyedBLAKE3.String()}

// parseRefName reads a digest, or the beginning of one.
func parseRefName(text string) (n refName, err error) {
	n.text, n.digits = text, strings.ToLower(text)
	if name, digits, ok := strings.Cut(n.digits, ":"); ok {
		n.digits = digits
		n.algorithm, n.tree = strings.CutSuffix(name, "-tree")
		if !slices.Contains(algorithms, n.algorithm) {
			return n, cli.Usagef("%q is not a digest: it begins with sha256:, sha256-tree:, blake3: or the like, or with its digits", cli.Shorten(text))
		}
	}
	switch whole := hex.EncodedLen(len(blob.Address{})); {
	case strings.Contains(text, "/"):
		return n, cli.Usagef("%q is a row, and here a digest is wanted: \"holdfast blob stat\" prints that of a row", cli.Shorten(text))
	case strings.Trim(n.digits, "0123456789abcdef") != "":
		return n, cli.Usagef("%q is not a digest: what it has is not hexadecimal", cli.Shorten(text))
	case len(n.digits) < minPrefix:
		return n, cli.Usagef("%q is too short: give %d digits of the digest, or more", cli.Shorten(text), minPrefix)
	case len(n.digits) > whole && n.algorithm != "":
		return n, cli.Usagef("%q is too long: a digest has %d digits", cli.Shorten(text), whole)
	}
	return n, nil
}

// resolve finds the blob that the command line names.
func (b *blobs) resolve(text string) (blob.Ref, error) {
	if ref, err := blob.ParseRef(text); err == nil {
		return b.have(ref, text)
	}
	if ref, found, err := b.row(text); err != nil || found {
		return ref, err
	}
	n, err := parseRefName(text)
	if err != nil {
		return blob.Ref{}, err
	}
	if len(n.digits) <= hex.EncodedLen(len(blob.Address{})) {
		found, err := b.matching(n)
		switch {
		case err != nil:
			return blob.Ref{}, err
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return blob.Ref{}, b.ambiguous(n, found)
		}
	}
	var ref blob.Ref
	if bytes, err := hex.DecodeString(n.digits); err == nil && n.algorithm == "" && ref.UnmarshalBinary(bytes) == nil {
		return b.have(ref, text)
	}
	return blob.Ref{}, b.noBlob(n)
}

// row is the blob to which a row refers, given as the path of its bucket, a / and its key, which may have further ones
// in it. found is false if text does not name a row.
func (b *blobs) row(text string) (ref blob.Ref, found bool, err error) {
	if b.tx == nil || !strings.Contains(text, "/") {
		return ref, false, nil
	}
	at := cli.Container{Tx: b.tx}
	for rest := text; ; {
		name, after, more := cutName(rest)
		if at.Bucket != nil {
			for _, key := range []string{rest, string(name)} {
				if value := at.Get([]byte(key)); value != nil && (key == rest || !more) {
					err := ref.UnmarshalBinary(value)
					if err != nil {
						return ref, true, &cli.FileError{File: b.file, What: fmt.Sprintf("row %s does not hold a reference to a blob", cli.Shorten(text)), Err: err}
					}
					ref, err = b.have(ref, text)
					return ref, true, err
				}
			}
		}
		var next *holdfast.Bucket
		if more {
			next = at.Child(name)
		}
		if err := b.tx.Err(); err != nil {
			return ref, false, err
		}
		if next == nil {
			return ref, true, &cli.FileError{File: b.file, What: fmt.Sprintf("no row %s", cli.Shorten(text)), Err: errNoBlob,
				Next: "give a digest, or BUCKET/KEY as of put --into; list blobs with: " + b.line("ls")}
		}
		at.Bucket, rest = next, after
	}
}

// cutName divides a path after its first name.
func cutName(path string) (name []byte, after string, more bool) {
	for i := 0; i < len(path) && !more; i++ {
		switch path[i] {
		case '\\':
			i++
		case '/':
			path, after, more = path[:i], path[i+1:], true
		}
	}
	name = []byte(path)
	if names, err := cli.SplitPath(name); err == nil && len(names) == 1 {
		name = names[0]
	}
	return name, after, more
}

// have is ref, or an error if it is not in the store.
func (b *blobs) have(ref blob.Ref, text string) (blob.Ref, error) {
	ok, err := b.Has(ref)
	if err == nil && !ok {
		err = b.noBlob(refName{text: text, digits: ref.Address().String()})
	}
	return ref, err
}

// matching are the blobs whose address or digest begins as n says.
func (b *blobs) matching(n refName) (found []blob.Ref, err error) {
	refs, err := b.Find(n.digits)
	if err != nil {
		return nil, err
	}
	own := b.Options().Algorithm.String()
	for _, ref := range refs {
		fits := strings.HasPrefix(ref.Address().String(), strings.ToLower(n.digits)) &&
			(n.algorithm == "" || n.algorithm == own && n.tree == (ref.Level() > 0))
		if !fits && !n.tree && (n.algorithm == "" || n.algorithm == blob.SHA256.String()) {
			digest, err := b.digestOf(ref)
			if err != nil {
				return nil, err
			}
			fits = strings.HasPrefix(digest, "sha256:"+strings.ToLower(n.digits))
		}
		if fits {
			found = append(found, ref)
		}
	}
	return found, nil
}

var (
	errNoBlob    = errors.New("no such blob")
	errAmbiguous = errors.New("several blobs")
)

// ambiguous is the error of a beginning that several digests have.
func (b *blobs) ambiguous(n refName, found []blob.Ref) error {
	var names []string
	for _, ref := range found[:min(len(found), cli.MaxNamed)] {
		names = append(names, b.nameOf(ref))
	}
	return &cli.FileError{File: b.file, What: fmt.Sprintf("%s in %s have digests that begin with %s", cli.Plural(len(found), "blob"), cli.BriefPath(b.path), cli.Shorten(n.text)),
		Next: "give more digits: " + strings.Join(names, ", "), Err: errAmbiguous}
}

// noBlob is the error of a blob that is not there, with those that may have been meant.
func (b *blobs) noBlob(n refName) error {
	e := &cli.FileError{File: b.file, What: fmt.Sprintf("no blob %s in %s", n.text, cli.BriefPath(b.path)), Err: errNoBlob}
	if len(n.text) > 2*hex.EncodedLen(len(blob.Address{})) {
		e.What = fmt.Sprintf("no blob %s in %s", cli.Shorten(n.text), cli.BriefPath(b.path))
	}
	var digits []string
	names := map[string]string{}
	for ref, err := range b.Roots() {
		if err != nil || len(digits) == 2*maxRoots {
			break
		}
		name := b.nameOf(ref)
		for _, s := range []string{ref.Address().String(), name[strings.IndexByte(name, ':')+1:]} {
			s = s[:min(len(n.digits), len(s))] // as much of it as was given
			digits = append(digits, s)
			names[s] = name
		}
	}
	if len(digits) == 0 {
		e.Next = "it has no blobs"
		return e
	}
	var near []string
	for _, s := range cli.Similar(n.digits, digits) {
		if name := names[s]; !slices.Contains(near, name) {
			near = append(near, name)
		}
	}
	if len(near) > 0 {
		e.Next = "similar: " + strings.Join(near, ", ") + "; "
	}
	e.Next += "list them with: " + b.line("ls")
	return e
}

// line is the command line of a command on the store.
func (b *blobs) line(name string) string { return b.call.StoreLine(name, b.file, b.path) }

// digestOf is the digest of the whole blob as OCI writes it; "" if it is not known.
func (b *blobs) digestOf(ref blob.Ref) (string, error) {
	sum, ok, err := b.DigestOf(ref)
	if err != nil || !ok {
		return "", err
	}
	return "sha256:" + blob.Address(sum).String(), nil
}

// nameOf is the digest of the whole blob or, if that is not known, its address.
func (b *blobs) nameOf(ref blob.Ref) string {
	if digest, err := b.digestOf(ref); err == nil && digest != "" {
		return digest
	}
	return ref.String()
}

// refReport names a blob in JSON.
type refReport struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest,omitempty"` // SHA-256 of the whole, if it is known
	Bytes     int64  `json:"bytes"`
}

func (b *blobs) report(ref blob.Ref) (r refReport, err error) {
	r = refReport{Reference: ref.String(), Bytes: ref.Size()}
	r.Digest, err = b.digestOf(ref)
	return r, err
}
