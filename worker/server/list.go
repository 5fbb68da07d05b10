package server

import "google.golang.org/protobuf/proto"

// Limits on a message of a list: clients refuse long ones, by default those of more than 4 MiB.
const (
	listRows  = 100
	listBytes = 1 << 20 // and what the last row has more
)

// A lister sends the rows of a list in messages.
type lister[T proto.Message] struct {
	send func([]T) error
	rows []T
	size int // bytes
}

// add adds a row, and sends what there is if that is enough.
func (l *lister[T]) add(row T) error {
	l.rows = append(l.rows, row)
	l.size += proto.Size(row)
	if len(l.rows) < listRows && l.size < listBytes {
		return nil
	}
	return l.end()
}

// end sends what is left.
func (l *lister[T]) end() error {
	if len(l.rows) == 0 {
		return nil
	}
	err := l.send(l.rows)
	l.rows, l.size = nil, 0
	return err
}
