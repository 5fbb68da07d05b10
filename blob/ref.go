package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"
)

// Algorithm is the hash function that names chunks.
type Algorithm uint8

// Hash functions. All have 32 bytes.
const (
	SHA256 Algorithm = 1 // the default; fast where the processor has instructions for it
	BLAKE3 Algorithm = 2
	// KeyedBLAKE3 is the one of encrypted stores: with the key of the store, without which an address tells nothing of
	// the content.
	KeyedBLAKE3 Algorithm = 3
)

// String is the name that stands in a reference's text: "sha256", "blake3", "blake3-keyed".
func (a Algorithm) String() string {
	switch a {
	case SHA256:
		return "sha256"
	case BLAKE3:
		return "blake3"
	case KeyedBLAKE3:
		return "blake3-keyed"
	}
	return "algorithm " + strconv.Itoa(int(a))
}

func (a Algorithm) valid() bool { return a >= SHA256 && a <= KeyedBLAKE3 }

// inlines tells whether a reference of the function can hold the bytes themselves.
func (a Algorithm) inlines() bool { return a == SHA256 || a == BLAKE3 }

// sum is the address of a chunk of a store with the options.
func (o *Options) sum(p []byte) Address {
	if o.Key != nil {
		return o.Key.addresses.hash(p)
	}
	return o.Algorithm.sum(p)
}

// sum is the hash of p with a function without a key.
func (a Algorithm) sum(p []byte) Address {
	if a == BLAKE3 {
		return blake3.Sum256(p)
	}
	return sha256.Sum256(p)
}

// Address is the hash of the bytes of a chunk, before compression and encryption.
type Address [32]byte

// String is the address in hexadecimal.
func (a Address) String() string { return hex.EncodeToString(a[:]) }

// MaxInline is the length in bytes of the longest value that Store.Put can keep in
// the reference itself.
const MaxInline = 1 << 10

// MaxRefSize is the length in bytes of the longest encoded Ref that is not inline.
const MaxRefSize = 2 + binary.MaxVarintLen64 + len(Address{})

// maxLevel bounds the height of a tree: no blob has more levels.
const maxLevel = 12

// Ref names a blob: the address of the root of its tree, how high that is, and
// the blob's size. It is what a row holds to name its blob. An inline Ref holds
// the bytes themselves. The zero Ref names nothing. Refs are comparable, also as keys of a map: those
// that are equal name the same blob in the same way.
type Ref struct {
	addr      Address // of an inline blob of at most len(Address) bytes: the bytes
	size      int64
	algorithm Algorithm
	level     uint8
	inlined   bool
	inline    Inline // of longer ones
}

// Inline is the content of a blob that its Ref holds itself.
type Inline string

// Bytes returns a copy of the value.
func (v Inline) Bytes() []byte { return []byte(v) }

// inlineRef returns the Ref of a value that it holds itself.
func inlineRef(a Algorithm, p []byte) Ref {
	r := Ref{size: int64(len(p)), algorithm: a, inlined: true}
	if copy(r.addr[:], p) < len(p) {
		r.addr, r.inline = Address{}, Inline(p)
	}
	return r
}

// value returns the bytes of an inline blob, which may share the memory of r.
func (r *Ref) value() []byte {
	if r.inline != "" {
		return r.inline.Bytes()
	}
	return r.addr[:r.size]
}

// Address is the address of the root of the blob's tree; of an inline blob the
// hash of its bytes, which is what its address would be in a store.
func (r Ref) Address() Address {
	if r.inlined {
		return r.algorithm.sum(r.value())
	}
	return r.addr
}

// Size is the size of the blob in bytes.
func (r Ref) Size() int64 { return r.size }

// Level is the height of the blob's tree: 0 for a blob of one leaf.
func (r Ref) Level() int { return int(r.level) }

// Algorithm is the hash function of the reference.
func (r Ref) Algorithm() Algorithm { return r.algorithm }

// Inline gives the value of an inline blob, and tells whether it is one.
func (r Ref) Inline() (Inline, bool) {
	if !r.inlined || r.inline != "" {
		return r.inline, r.inlined
	}
	return Inline(r.value()), true
}

// IsZero tells whether r is the zero Ref, which names nothing.
func (r Ref) IsZero() bool { return r.algorithm == 0 }

func (r Ref) key() chunkKey { return chunkKey{r.addr, r.level} }

// inlineForm in the first byte of an encoded Ref says that the bytes follow.
const inlineForm = 0x40

// AppendBinary appends the encoded Ref to b: at most MaxRefSize bytes, or one
// more than an inline blob has. The error is ErrInvalidRef for the zero Ref.
func (r Ref) AppendBinary(b []byte) ([]byte, error) {
	switch {
	case r.IsZero():
		return b, fmt.Errorf("encoding the zero reference: %w", ErrInvalidRef)
	case r.inlined:
		b = append(b, byte(r.algorithm)|inlineForm)
		if r.inline != "" {
			return append(b, r.inline...), nil
		}
		return append(b, r.value()...), nil
	}
	b = append(b, byte(r.algorithm), r.level)
	b = binary.AppendUvarint(b, uint64(r.size))
	return append(b, r.addr[:]...), nil
}

// MarshalBinary is AppendBinary to a new slice.
func (r Ref) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, max(MaxRefSize, 1+len(r.inline))))
}

// UnmarshalBinary makes r what AppendBinary has encoded. b is not kept. Anything
// else is ErrInvalidRef, bytes in excess too.
func (r *Ref) UnmarshalBinary(b []byte) error {
	ref, err := decodeRef(b)
	if err != nil {
		return fmt.Errorf("reference of %d bytes: %w: %w", len(b), ErrInvalidRef, err)
	}
	*r = ref
	return nil
}

func decodeRef(b []byte) (Ref, error) {
	if len(b) == 0 {
		return Ref{}, errShort
	}
	form, b := b[0], b[1:]
	if a := Algorithm(form &^ inlineForm); form&inlineForm != 0 && a.inlines() {
		if len(b) > MaxInline {
			return Ref{}, errLong
		}
		return inlineRef(a, b), nil
	}
	r := Ref{algorithm: Algorithm(form)}
	if !r.algorithm.valid() {
		return Ref{}, fmt.Errorf("unknown form %d", form)
	}
	if len(b) == 0 {
		return Ref{}, errShort
	}
	r.level, b = b[0], b[1:]
	size, b, err := uvarint(b)
	switch {
	case err != nil:
		return Ref{}, err
	case len(b) < len(r.addr):
		return Ref{}, errShort
	case len(b) > len(r.addr):
		return Ref{}, errLong
	}
	copy(r.addr[:], b)
	return r, r.setSize(size)
}

// setSize checks the size that r is said to have, as far as that can be done
// without the store.
func (r *Ref) setSize(size uint64) error {
	switch {
	case size > math.MaxInt64:
		return fmt.Errorf("size %d is too large", size)
	case r.level > maxLevel:
		return fmt.Errorf("level %d is too high", r.level)
	case r.level == 0 && size > maxChunk:
		return fmt.Errorf("no leaf has %d bytes", size)
	case r.level > 0 && size < 2:
		return fmt.Errorf("no tree of level %d has %d bytes", r.level, size)
	}
	r.size = int64(size)
	return nil
}

// String is the blob's digest: of a blob of one leaf the form that OCI uses,
// "sha256:" and the address in hexadecimal, of a longer one "sha256-tree:" and
// the address of its root. Store.Find leads from its hexadecimal digits to the Ref again.
func (r Ref) String() string {
	switch {
	case r.IsZero():
		return "no blob"
	case r.level > 0:
		return r.algorithm.String() + "-tree:" + r.addr.String()
	}
	return r.algorithm.String() + ":" + r.Address().String()
}

// parseDigest reads what Ref.String gives. tree tells whether it is the address of
// a tree. It is ErrInvalidRef if s is anything else.
func parseDigest(s string) (a Algorithm, addr Address, tree bool, err error) {
	name, digits, _ := strings.Cut(s, ":")
	if short, ok := strings.CutSuffix(name, "-tree"); ok {
		name, tree = short, true
	}
	a, ok := algorithmNamed(name)
	if !ok || len(digits) != hex.EncodedLen(len(addr)) {
		return 0, Address{}, false, fmt.Errorf("digest %.100q: %w", s, ErrInvalidRef)
	}
	if _, err := hex.Decode(addr[:], []byte(digits)); err != nil || strings.ToLower(digits) != digits {
		return 0, Address{}, false, fmt.Errorf("digest %.100q: %w", s, ErrInvalidRef)
	}
	return a, addr, tree, nil
}

func algorithmNamed(name string) (Algorithm, bool) {
	for _, a := range []Algorithm{SHA256, BLAKE3, KeyedBLAKE3} {
		if a.String() == name {
			return a, true
		}
	}
	return 0, false
}

// AppendText appends the whole Ref as text: its digest followed by the size, for
// a tree the level too, as in "sha256:HEX:SIZE" and "sha256-tree:HEX:SIZE:LEVEL"; for
// an inline blob "sha256-inline:" and its bytes in hexadecimal. ParseRef reads it. It is
// ErrInvalidRef for the zero Ref.
func (r Ref) AppendText(b []byte) ([]byte, error) {
	switch {
	case r.IsZero():
		return b, fmt.Errorf("encoding the zero reference: %w", ErrInvalidRef)
	case r.inlined:
		b = append(append(b, r.algorithm.String()...), "-inline:"...)
		return hex.AppendEncode(b, r.value()), nil
	}
	b = append(append(b, r.String()...), ':')
	b = strconv.AppendInt(b, r.size, 10)
	if r.level > 0 {
		b = strconv.AppendInt(append(b, ':'), int64(r.level), 10)
	}
	return b, nil
}

// MarshalText is AppendText to a new slice.
func (r Ref) MarshalText() ([]byte, error) { return r.AppendText(nil) }

// UnmarshalText is ParseRef.
func (r *Ref) UnmarshalText(b []byte) error {
	ref, err := ParseRef(string(b))
	if err == nil {
		*r = ref
	}
	return err
}

// ParseRef reads what AppendText gives, and only exactly that; anything else is
// ErrInvalidRef.
func ParseRef(s string) (Ref, error) {
	r, err := parseRef(s)
	if err == nil {
		// Other ways to write the same number are not what AppendText gives.
		var again []byte
		if again, err = r.AppendText(nil); err == nil && string(again) != s {
			err = errLong
		}
	}
	if err != nil {
		return Ref{}, fmt.Errorf("reference %.100q: %w: %w", s, ErrInvalidRef, err)
	}
	return r, nil
}

func parseRef(s string) (Ref, error) {
	parts := strings.Split(s, ":")
	if name, ok := strings.CutSuffix(parts[0], "-inline"); ok {
		a, ok := algorithmNamed(name)
		if !ok || !a.inlines() || len(parts) != 2 || len(parts[1]) > 2*MaxInline {
			return Ref{}, errForm
		}
		p, err := hex.DecodeString(parts[1])
		if err != nil {
			return Ref{}, err
		}
		return inlineRef(a, p), nil
	}
	if len(parts) != 3 && len(parts) != 4 {
		return Ref{}, errForm
	}
	a, addr, tree, err := parseDigest(parts[0] + ":" + parts[1])
	if err != nil {
		return Ref{}, err
	}
	r := Ref{algorithm: a, addr: addr}
	size, err := strconv.ParseUint(parts[2], 10, 64)
	if err == nil && tree == (len(parts) == 3) {
		err = errForm
	}
	if err == nil && tree {
		var level uint64
		level, err = strconv.ParseUint(parts[3], 10, 8)
		if r.level = uint8(level); err == nil && level == 0 {
			err = errForm
		}
	}
	if err != nil {
		return Ref{}, err
	}
	return r, r.setSize(size)
}
