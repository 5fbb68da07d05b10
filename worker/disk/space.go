package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
)

// ErrFull: there is not the room that was asked for. The error is a *FullError, which has the figures.
var ErrFull = errors.New("not enough room on the disk")

// FullError says why a reservation was refused. It is ErrFull.
type FullError struct {
	Dir      string
	Wanted   int64 // bytes that were to be reserved
	Free     int64 // bytes that are free on the file system
	Reserved int64 // bytes of these that others have reserved and not written yet
	Keep     int64 // bytes of these that are always kept free
	Size     int64 // bytes of the file system

	Inodes     int64 // that go with all bytes that are wanted, reserved and kept: see FS.Share
	FreeInodes int64 // that are free on the file system

	Cause error // of what was to make room; nil: it could not make more
}

// Error has all figures.
func (e *FullError) Error() string {
	text := fmt.Sprintf("reserve %d bytes in %s: %v: %d bytes are free, %d of them are reserved by others, %d are kept free",
		e.Wanted, e.Dir, ErrFull, e.Free, e.Reserved, e.Keep)
	if e.OfInodes() {
		text += fmt.Sprintf("; %d inodes go with all these, and %d are free", e.Inodes, e.FreeInodes)
	}
	if e.Cause != nil {
		text += fmt.Sprintf("; making room failed: %v", e.Cause)
	}
	return text
}

// OfInodes tells whether there are bytes enough, and too few inodes.
func (e *FullError) OfInodes() bool {
	return e.Free >= add(add(e.Wanted, e.Reserved), e.Keep) && e.FreeInodes < e.Inodes
}

// TooLarge tells whether more was wanted than the file system can have free, whatever is removed.
func (e *FullError) TooLarge() bool { return e.Wanted > e.Size-e.Keep }

// Is says that it is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Unwrap is the error of what was to make room.
func (e *FullError) Unwrap() error { return e.Cause }

// Options say how to open a Space.
type Options struct {
	// Keep is how many bytes of the file system are never reserved. Not negative.
	Keep int64

	// Emergency is the size of the file that is given up when the disk is full; 0: none.
	Emergency int64

	// MakeRoom has so many bytes become free on the file system, with the inodes that go with them, as far as it can,
	// and returns when they are: for instance prune.Pruner.MakeRoom. It is called by one at a time. nil: nothing can be
	// done.
	MakeRoom func(ctx context.Context, free int64) error

	// Logger is told of the emergency file. It may be nil.
	Logger *slog.Logger
}

// Space gives out the room on the file system of a directory. Its methods may be called concurrently.
// Reservations are in memory: those of a process that ends are over.
type Space struct {
	dir     string
	opts    Options
	log     *slog.Logger
	measure func(string) (FS, error)
	making  chan struct{} // held by who makes room

	mu      sync.Mutex
	unspent int64 // of all reservations
	count   int

	emergency emergency
}

// Open opens the space of a directory, and makes the emergency file in it, if there is room.
func Open(dir string, options Options) (*Space, error) {
	if options.Keep < 0 || options.Emergency < 0 {
		return nil, fmt.Errorf("open space of %s: negative size", dir)
	}
	s := &Space{dir: dir, opts: options, log: options.Logger, measure: Measure, making: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if _, err := s.measure(dir); err != nil {
		return nil, fmt.Errorf("open space: %w", err)
	}
	s.emergency.init(dir, options.Emergency)
	if err := s.Restore(); err != nil {
		s.log.Warn("there is no emergency file yet", "directory", dir, "error", err)
	}
	return s, nil
}

// Reservation is room that no other can reserve, until Release.
type Reservation struct {
	s       *Space
	bytes   int64
	unspent int64
	over    bool
}

// Reserve reserves so many bytes, at once or not at all, and with them inodes (FS.Share). If they are not there it has
// room made, waits for that, and looks again. ErrFull if there is too little then, and at once if the file system is
// smaller.
func (s *Space) Reserve(ctx context.Context, bytes int64) (*Reservation, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("reserve %d bytes: negative", bytes)
	}
	r, full, err := s.try(bytes)
	if err != nil || r != nil {
		return r, err
	}
	if s.opts.MakeRoom == nil || full.TooLarge() {
		return nil, full
	}
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return nil, fmt.Errorf("reserve %d bytes: %w", bytes, ctx.Err())
	}
	// The holder before may have made enough for both.
	if r, full, err = s.try(bytes); err != nil || r != nil {
		return r, err
	}
	for {
		cause := s.opts.MakeRoom(ctx, add(add(full.Reserved, full.Keep), bytes))
		before := full.Reserved
		if r, full, err = s.try(bytes); err != nil || r != nil {
			return r, err
		}
		if full.Cause = cause; cause != nil || full.Reserved <= before {
			return nil, full
		}
		// Other reservations, which do not wait as long as there is room, have taken what was made.
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reserve %d bytes: %w", bytes, err)
		}
	}
}

// add is a sum, or the largest number that there is.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// try reserves what is there now.
func (s *Space) try(bytes int64) (*Reservation, *FullError, error) {
	if err := s.Restore(); err != nil && !errors.Is(err, ErrFull) {
		s.log.Warn("the emergency file cannot be made", "directory", s.dir, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fs, err := s.measure(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reserve %d bytes: %w", bytes, err)
	}
	if all := add(add(bytes, s.unspent), s.opts.Keep); !fs.Has(all) {
		return nil, &FullError{Dir: s.dir, Wanted: bytes, Free: fs.Free, Size: fs.Size, Reserved: s.unspent, Keep: s.opts.Keep,
			Inodes: fs.Share(all), FreeInodes: fs.FreeInodes}, nil
	}
	s.unspent += bytes
	s.count++
	return &Reservation{s: s, bytes: bytes, unspent: bytes}, nil, nil
}

// Bytes is how much was reserved.
func (r *Reservation) Bytes() int64 { return r.bytes }

// Spent says that so many bytes have been written, in all, since the reservation was made: they are missing
// on the file system already. Who does not call it has them counted twice until Release, which is safe.
func (r *Reservation) Spent(bytes int64) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.over {
		return
	}
	left := max(r.bytes-max(bytes, 0), 0)
	r.s.unspent += left - r.unspent
	r.unspent = left
}

// Release gives the rest back. Further calls do nothing.
func (r *Reservation) Release() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.over {
		return
	}
	r.over = true
	r.s.unspent -= r.unspent
	r.s.count--
}

// Figures are those of a Space.
type Figures struct {
	FS
	Keep         int64 // bytes that are never reserved
	Reserved     int64 // bytes that are reserved and not written yet
	Reservations int
	Emergency    int64 // size of the emergency file; 0: it is given up, or there is none
}

// Figures gives them as they are now.
func (s *Space) Figures() (Figures, error) {
	fs, err := s.measure(s.dir)
	if err != nil {
		return Figures{}, fmt.Errorf("figures of the disk: %w", err)
	}
	f := Figures{FS: fs, Keep: s.opts.Keep, Emergency: s.emergency.held()}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Reserved, f.Reservations = s.unspent, s.count
	return f, nil
}

// Reserved is how many bytes are reserved and not written yet.
func (s *Space) Reserved() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unspent
}
