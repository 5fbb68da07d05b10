package blob

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/crypto/chacha20poly1305"
)

// Cipher encrypts what a store keeps, with one secret. KeyOf makes a Key of it; NewKey has one that is good for all that this
// package knows of. Its methods may be called by several goroutines at once.
type Cipher interface {
	// Subkey derives 32 bytes from the secret for a purpose: always the same, from which neither the secret nor the bytes for
	// another purpose can be learnt. Another Cipher with the same secret must give other bytes.
	Subkey(purpose string) [32]byte
	// Seal appends plaintext to dst, encrypted and authenticated along with the additional data, which is not part of it.
	// It gives something else each time. dst shares no memory with plaintext.
	Seal(dst, plaintext, additional []byte) []byte
	// Open appends to dst what Seal was given. It is an error if sealed is not what Seal has appended, with the same
	// additional data and secret.
	Open(dst, sealed, additional []byte) ([]byte, error)
	// Overhead is by how many bytes what Seal appends is longer than the plaintext: always as many, 255 at most.
	Overhead() int
}

// Key is what an encrypted store is created with (Options.Key) and opened with (OpenEncrypted). It is best made once, and may
// be used by several goroutines at once. Whatever is printed of it tells nothing of the secret.
type Key struct {
	cipher   Cipher
	overhead int

	addresses keyedHash
	records   keyedHash // of the record of the store
	wholes    keyedHash // of digests of whole blobs
	gear      [256]uint64
	check     [checkSize]byte
	id        [32]byte
}

// checkSize is the length in bytes of what the record of a store has of the key.
const checkSize = 16

// maxOverhead is by how many bytes a leaf gets longer at most: by its kind and by what a Cipher adds.
const maxOverhead = 1 + 255

// NewKey makes a key of a secret of 32 random bytes. Leaves are encrypted with XChaCha20-Poly1305 and random nonces of 24 bytes,
// of which no two are the same in practice whatever the number of leaves. A guess of the secret can be verified with
// the file: so a password will not do, unless a slow function has made 32 bytes of it.
func NewKey(secret [32]byte) (*Key, error) {
	c := &xchacha{secret: secret}
	sealing := c.Subkey("sealing")
	var err error
	if c.aead, err = chacha20poly1305.NewX(sealing[:]); err != nil {
		return nil, fmt.Errorf("key of a blob store: %w", err)
	}
	return KeyOf(c)
}

// KeyOf makes a key of a Cipher. ErrOptions if its overhead is none that a Cipher can have.
func KeyOf(c Cipher) (*Key, error) {
	k := &Key{cipher: c, overhead: c.Overhead()}
	if k.overhead < 0 || k.overhead >= maxOverhead {
		return nil, fmt.Errorf("%w: a cipher with an overhead of %d bytes", ErrOptions, k.overhead)
	}
	k.addresses.key = c.Subkey("addresses")
	k.records.key = c.Subkey("record")
	k.wholes.key = c.Subkey("digests")
	k.id = c.Subkey("id")
	check := c.Subkey("check")
	copy(k.check[:], check[:])
	chunking := c.Subkey("chunking")
	h := keyed(&chunking)
	var random [8 * len(k.gear)]byte
	_, _ = h.Digest().Read(random[:]) // of any length, and without errors
	for i := range k.gear {
		k.gear[i] = binary.LittleEndian.Uint64(random[8*i:])
	}
	return k, nil
}

// Format writes nothing of the key but whether there is one.
func (k *Key) Format(f fmt.State, _ rune) {
	text := "blob.Key"
	if k == nil {
		text = "no key"
	}
	_, _ = f.Write([]byte(text)) // what prints has the error
}

// ID tells keys apart: it is the same for the same secret. Neither is anything else learnt from it, nor is it in a file.
func (k *Key) ID() [32]byte { return k.id }

// sameKey tells whether two keys, or none, are of the same secret.
func sameKey(a, b *Key) bool {
	return a == b || a != nil && b != nil && a.id == b.id
}

// Overhead is by how many bytes SealMessage makes a message longer.
func (k *Key) Overhead() int { return k.overhead }

var messageLabel = []byte("message\x00")

// SealMessage appends to dst a message for who has the key, encrypted and authenticated along with what it is about.
func (k *Key) SealMessage(dst, message, about []byte) []byte {
	return k.cipher.Seal(dst, message, slices.Concat(messageLabel, about))
}

// OpenMessage gives the message that was sealed: ErrCorrupt if it was not sealed so, with the same key and about the same.
func (k *Key) OpenMessage(sealed, about []byte) ([]byte, error) {
	p, err := k.cipher.Open(nil, sealed, slices.Concat(messageLabel, about))
	if err != nil {
		return nil, corruptf("a message was not sealed with the key: %v", err)
	}
	return p, nil
}

// sealRecord seals a value of a record, which belongs to what is said.
func (k *Key) sealRecord(p []byte, what string, of []byte) []byte {
	return k.cipher.Seal(nil, p, append([]byte(what+"\x00"), of...))
}

func (k *Key) openRecord(v []byte, what string, of []byte) ([]byte, error) {
	p, err := k.cipher.Open(make([]byte, 0, len(v)), v, append([]byte(what+"\x00"), of...))
	if err != nil {
		return nil, corruptf("sealed %s: %v", what, err)
	}
	return p, nil
}

// keyedHash is BLAKE3 with a key.
type keyedHash struct {
	key  [32]byte
	pool sync.Pool // of *keyedHasher, which takes some 12 KiB
}

type keyedHasher struct {
	*blake3.Hasher
	sum Address
}

func keyed(key *[32]byte) *blake3.Hasher {
	h, err := blake3.NewKeyed(key[:])
	if err != nil {
		panic(err) // of a key of another length
	}
	return h
}

// hash does not give its hasher back after a fault of the memory that it reads.
func (k *keyedHash) hash(p []byte) Address {
	h, _ := k.pool.Get().(*keyedHasher)
	if h == nil {
		h = &keyedHasher{Hasher: keyed(&k.key)}
	}
	h.Reset()
	_, _ = h.Write(p) // it has no errors
	h.Sum(h.sum[:0])
	sum := h.sum
	k.pool.Put(h)
	return sum
}

// xchacha is the Cipher of NewKey.
type xchacha struct {
	secret [32]byte
	aead   cipher.AEAD
}

func (c *xchacha) Subkey(purpose string) (key [32]byte) {
	b, err := hkdf.Key(sha256.New, c.secret[:], nil, "holdfast blob store, XChaCha20-Poly1305: "+purpose, len(key))
	if err != nil {
		panic(err) // of a length that is too large
	}
	return [32]byte(b)
}

func (c *xchacha) Seal(dst, plaintext, additional []byte) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(plaintext)+c.Overhead())[:at+chacha20poly1305.NonceSizeX]
	_, _ = rand.Read(dst[at:]) // it has no errors
	return c.aead.Seal(dst, dst[at:], plaintext, additional)
}

func (c *xchacha) Open(dst, sealed, additional []byte) ([]byte, error) {
	if len(sealed) < c.Overhead() {
		return nil, errShort
	}
	return c.aead.Open(dst, sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:], additional)
}

func (c *xchacha) Overhead() int { return chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead }
