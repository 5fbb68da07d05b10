package exchange

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"holdfast/blob"
)

const (
	magic   = "HFEX"
	version = 1
	sealed  = 2 // of an encrypted store: with the id of its key
)

var errGreeting = protocolf("it does not begin with the greeting of one")

// direction is where the blobs go.
type direction byte

const (
	push direction = 1 // from the side that has connected
	pull direction = 2 // to it
)

// hello is the first message of both sides: who is there, and what its store is like. The side that serves answers with
// the direction that it was asked for, and without a lease.
type hello struct {
	direction direction
	store     blob.Options // without the key
	sealed    bool         // it is encrypted
	key       [32]byte     // the id of its key then
	expires   int64        // of the lease, in seconds since 1970; 0: never
	keep      int64        // seconds
	lease     string
}

const (
	helloSize = len(magic) + 1 + 1 + 1 + 1 + 4 + 8 + 8
	// MaxLease is the length in bytes of the longest id of a lease that can hold what is received.
	MaxLease = 1 << 10
)

func (h *hello) append(b []byte) []byte {
	b = append(b, magic...)
	v := byte(version) // which older programs know
	if h.sealed {
		v = sealed
	}
	b = append(b, v, byte(h.direction), byte(h.store.Algorithm), byte(h.store.Chunking))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.store.LeafSize))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.expires))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.keep))
	if h.sealed {
		b = append(b, h.key[:]...)
	}
	return append(b, h.lease...)
}

func parseHello(b []byte) (h hello, err error) {
	switch {
	case len(b) < len(magic)+1 || string(b[:len(magic)]) != magic:
		return h, errGreeting
	case b[len(magic)] != version && b[len(magic)] != sealed:
		return h, protocolf("it speaks version %d, and this program versions %d and %d", b[len(magic)], version, sealed)
	}
	size := helloSize
	if h.sealed = b[len(magic)] == sealed; h.sealed {
		size += len(h.key)
	}
	if len(b) < size || len(b) > size+MaxLease {
		return h, protocolf("a greeting of %d bytes", len(b))
	}
	b = b[len(magic)+1:]
	h.direction = direction(b[0])
	h.store = blob.Options{Algorithm: blob.Algorithm(b[1]), Chunking: blob.Chunking(b[2]), LeafSize: int(min(binary.LittleEndian.Uint32(b[3:]), math.MaxInt32))}
	h.expires, h.keep = int64(binary.LittleEndian.Uint64(b[7:])), int64(binary.LittleEndian.Uint64(b[15:]))
	b = b[23:]
	if h.sealed {
		b = b[copy(h.key[:], b):]
	}
	h.lease = string(b)
	switch {
	case h.direction != push && h.direction != pull:
		return h, protocolf("it asks for direction %d", h.direction)
	case h.expires < 0 || h.keep < 0 || h.keep > int64(math.MaxInt64/time.Second):
		return h, protocolf("a lease until %d, kept for %d seconds", h.expires, h.keep)
	}
	return h, nil
}

// ErrDifferentStores: the two stores are not made alike, so that equal content has other addresses in them.
var ErrDifferentStores = fmt.Errorf("the stores have different hash functions, chunking or leaf sizes")

// ErrDifferentKeys: one of the stores is encrypted and the other is not, or with another key.
var ErrDifferentKeys = fmt.Errorf("the stores are not encrypted with the same key")

// alike is the error of stores between which nothing can be exchanged.
func alike(own, peer *hello) error {
	if own.sealed != peer.sealed || own.key != peer.key {
		text := func(h *hello) string {
			if h.sealed {
				return "is encrypted"
			}
			return "is not"
		}
		return fmt.Errorf("%w: this one %s, the peer's %s; read the blobs from the one and put them into the other, or make the receiving store anew with the key of the other",
			ErrDifferentKeys, text(own), text(peer))
	}
	return sameShape(own.store, peer.store)
}

func sameShape(own, peer blob.Options) error {
	if own == peer {
		return nil
	}
	text := func(o blob.Options) string {
		return fmt.Sprintf("%v, %v, %d bytes", o.Algorithm, o.Chunking, o.LeafSize)
	}
	return fmt.Errorf("%w: this one %s, the peer's %s; read the blobs from the one and put them into the other, or make the receiving store anew with the options of the other",
		ErrDifferentStores, text(own), text(peer))
}
