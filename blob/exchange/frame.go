package exchange

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A message is a frame: its length without these 4 bytes as a uint32, little-endian like all numbers, a byte for its
// kind, and its body.
type kind byte

const (
	kindHello  kind = 1 // first in both directions, see hello.go
	kindFail   kind = 2 // text: the last message of a side that gives up
	kindOffer  kind = 3 // receiver: more references, please
	kindFind   kind = 4 // receiver: those of blobs whose address begins so; hexadecimal digits, sealed as chunks are
	kindRefs   kind = 5 // sender: for each reference its length as a uint16, and the reference
	kindGet    kind = 6 // receiver: for each chunk its level, a byte, and its address
	kindChunk  kind = 7 // sender, one for each of these, in order: a status, and the bytes
	kindResult kind = 8 // receiver, of one that was offered: length of the reference as a byte, the reference, why not
	kindEnd    kind = 9 // receiver: that is all
)

// Status of a chunk.
const (
	statusHere    = 0
	statusMissing = 1
	statusDamaged = 2
)

const (
	frameHeader = 4 + 1

	maxText    = 1 << 10 // of a message
	maxRefs    = 1 << 10 // references in a message
	maxChunks  = 1 << 9  // that are asked for in a message
	chunkEntry = 1 + 32  // of kindGet
	// maxSmall bounds the body of all messages but kindChunk.
	maxSmall = 1 << 17
)

// Errors of a peer.
var (
	// ErrProtocol: the peer does not follow the protocol: it is not one, or of another version, or lies.
	ErrProtocol = errors.New("the peer does not follow the protocol")
	// ErrPeer: the peer has given up, for the reason that it says.
	ErrPeer = errors.New("the peer has given up")
)

func protocolf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// frames reads and writes messages. One goroutine may read while another one writes.
type frames struct {
	r *bufio.Reader
	w *bufio.Writer
}

const bufferSize = 64 << 10

func newFrames(conn io.ReadWriter) *frames {
	return &frames{bufio.NewReaderSize(conn, bufferSize), bufio.NewWriterSize(conn, bufferSize)}
}

// header reads the beginning of a message whose body has at most limit bytes, and gives how many. The reason of a peer
// that has given up is the error.
func (f *frames) header(limit int) (kind, int, error) {
	var b [frameHeader]byte
	if _, err := io.ReadFull(f.r, b[:]); err != nil {
		return 0, 0, fmt.Errorf("reading from the peer: %w", err)
	}
	k, length := kind(b[4]), binary.LittleEndian.Uint32(b[:])
	if k == kindFail {
		limit = maxText
	}
	if length < 1 || int64(length)-1 > int64(limit) {
		return 0, 0, protocolf("a message of kind %d and %d bytes, where one of at most %d should be", k, length, limit)
	}
	n := int(length) - 1
	if k != kindFail {
		return k, n, nil
	}
	text, err := f.body(n)
	if err != nil {
		return 0, 0, err
	}
	return 0, 0, fmt.Errorf("%w: %s", ErrPeer, printable(text))
}

// printable is what a peer says, as far as it can be shown on a terminal.
func printable(text []byte) string {
	q := fmt.Sprintf("%+q", text)
	return q[1 : len(q)-1]
}

// body reads the body of a message.
func (f *frames) body(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(f.r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading from the peer: %w", err)
	}
	return b, nil
}

// read reads a message other than a chunk.
func (f *frames) read() (kind, []byte, error) {
	k, n, err := f.header(maxSmall)
	if err != nil {
		return 0, nil, err
	}
	b, err := f.body(n)
	return k, b, err
}

// write writes a message, which is sent by flush.
func (f *frames) write(k kind, parts ...[]byte) error {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	var b [frameHeader]byte
	binary.LittleEndian.PutUint32(b[:], uint32(n))
	b[4] = byte(k)
	_, err := f.w.Write(b[:])
	for _, p := range parts {
		if err == nil {
			_, err = f.w.Write(p)
		}
	}
	if err != nil {
		return fmt.Errorf("writing to the peer: %w", err)
	}
	return nil
}

func (f *frames) flush() error {
	if err := f.w.Flush(); err != nil {
		return fmt.Errorf("writing to the peer: %w", err)
	}
	return nil
}

// send is write and flush.
func (f *frames) send(k kind, parts ...[]byte) error {
	if err := f.write(k, parts...); err != nil {
		return err
	}
	return f.flush()
}
