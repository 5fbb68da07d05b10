package command

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast"
	"holdfast/blob"
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

// parseRefName reads a digest, or the beginning of one.
func parseRefName(text string) (n refName, err error) {
	n.text, n.digits = text, strings.ToLower(text)
	if name, digits, ok := strings.Cut(n.digits, ":"); ok {
		n.digits = digits
		n.algorithm, n.tree = strings.CutSuffix(name, "-tree")
		if n.algorithm != blob.SHA256.String() && n.algorithm != blob.BLAKE3.String() {
			return n, usagef("%q is no digest: it begins with sha256:, sha256-tree:, blake3: or blake3-tree:, or with its digits", shorten(text))
		}
	}
	switch whole := hex.EncodedLen(len(blob.Address{})); {
	case strings.Trim(n.digits, "0123456789abcdef") != "":
		return n, usagef("%q is no digest: what it has is not hexadecimal", shorten(text))
	case len(n.digits) < minPrefix:
		return n, usagef("%q is too short: give %d digits of the digest, or more", shorten(text), minPrefix)
	case len(n.digits) > whole && n.algorithm != "":
		return n, usagef("%q is too long: a digest has %d digits", shorten(text), whole)
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
	at := container{tx: b.tx}
	for rest := text; ; {
		name, after, more := cutName(rest)
		if at.Bucket != nil {
			for _, key := range []string{rest, string(name)} {
				if value := at.Get([]byte(key)); value != nil && (key == rest || !more) {
					err := ref.UnmarshalBinary(value)
					if err != nil {
						return ref, true, &fileError{file: b.file, what: fmt.Sprintf("row %s does not hold a reference to a blob", shorten(text)), err: err}
					}
					ref, err = b.have(ref, text)
					return ref, true, err
				}
			}
		}
		var next *holdfast.Bucket
		if more {
			next = at.child(name)
		}
		if err := b.tx.Err(); err != nil {
			return ref, false, err
		}
		if next == nil {
			return ref, true, &fileError{file: b.file, what: fmt.Sprintf("no row %s", shorten(text)), err: errNoBlob,
				next: "give a digest, or BUCKET/KEY as of put --into; list blobs with: " + b.line("ls")}
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
	if names, err := splitPath(name); err == nil && len(names) == 1 {
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
		if !fits && !n.tree && n.algorithm != blob.BLAKE3.String() {
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
	for _, ref := range found[:min(len(found), maxNamed)] {
		names = append(names, b.nameOf(ref))
	}
	return &fileError{file: b.file, what: fmt.Sprintf("%s in %s have digests that begin with %s", plural(len(found), "blob"), briefPath(b.path), shorten(n.text)),
		next: "give more digits: " + strings.Join(names, ", "), err: errAmbiguous}
}

// noBlob is the error of a blob that is not there, with those that may have been meant.
func (b *blobs) noBlob(n refName) error {
	e := &fileError{file: b.file, what: fmt.Sprintf("no blob %s in %s", n.text, briefPath(b.path)), err: errNoBlob}
	if len(n.text) > 2*hex.EncodedLen(len(blob.Address{})) {
		e.what = fmt.Sprintf("no blob %s in %s", shorten(n.text), briefPath(b.path))
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
		e.next = "it has no blobs"
		return e
	}
	var near []string
	for _, s := range similar(n.digits, digits) {
		if name := names[s]; !slices.Contains(near, name) {
			near = append(near, name)
		}
	}
	if len(near) > 0 {
		e.next = "similar: " + strings.Join(near, ", ") + "; "
	}
	e.next += "list them with: " + b.line("ls")
	return e
}

// line is the command line of a command on the store.
func (b *blobs) line(name string) string { return b.call.storeLine(name, b.file, b.path) }

// storeLine is the command line of a command on the store at path.
func (a *app) storeLine(name, file string, path [][]byte) string {
	return fmt.Sprintf("%s blob %s %s %s", a.name(), name, shellQuote(file), storeText(path))
}

// storeText writes the path of a store as the command line takes it.
func storeText(path [][]byte) string {
	if !plainPath(path) {
		return hexPath(path) + " --bucket-format hex"
	}
	return shellQuote(pathText(path))
}

// plainPath tells whether the path can be given as it is.
func plainPath(path [][]byte) bool {
	return !slices.ContainsFunc(path, func(name []byte) bool { return !printable(name) || bytes.Contains(name, []byte("/")) })
}

// hexPath writes the path as it is taken with --bucket-format hex.
func hexPath(path [][]byte) string {
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = hex.EncodeToString(name)
	}
	return strings.Join(names, "/")
}

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
