package trace

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var errLog = errors.New("not a log of holdfast/test/record")

// ReadLog reads the log of holdfast/test/record of one process and one phase. It returns the transactions in the order in which they were
// committed. All names are Fixed; the outermost bucket of each entry has the name of the file of the database.
func ReadLog(r io.Reader) ([]Tx, error) {
	l := log{files: map[string]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for at := 1; lines.Scan(); at++ {
		if err := l.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("log, line %d: %.200q: %w", at, lines.Text(), err)
		}
	}
	err := lines.Err()
	if err == nil && l.open {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	slices.SortFunc(l.all, func(a, b logged) int { return cmp.Compare(a.number, b.number) })
	var all []Tx
	for i, t := range l.all {
		if i > 0 && t.number == l.all[i-1].number {
			return nil, fmt.Errorf("log: transaction %d is there twice, as if there had been two processes: %w", t.number, errLog)
		}
		all = append(all, t.tx)
	}
	return all, nil
}

// A log is one that is being read.
type log struct {
	all   []logged
	open  bool              // the last transaction has not ended
	files map[string]string // paths by name
	file  Name              // of the last transaction
}

type logged struct {
	number int
	tx     Tx
}

func (l *log) line(s string) error {
	fields := strings.Split(s, " ")
	switch {
	case len(fields) == 3 && fields[0] == "tx" && !l.open:
		return l.begin(fields[1], fields[2])
	case s == "end" && l.open && len(l.all[len(l.all)-1].tx) > 0:
		l.open = false
		return nil
	case len(fields) == 4 && l.open:
		e, err := l.entry(fields)
		last := &l.all[len(l.all)-1]
		last.tx = append(last.tx, e)
		return err
	}
	return errLog
}

func (l *log) begin(number, file string) error {
	n, err := strconv.Atoi(number)
	p, pathErr := hex.DecodeString(file)
	if err := errors.Join(err, pathErr); err != nil {
		return err
	}
	name := path.Base(filepath.ToSlash(string(p)))
	if other, ok := l.files[name]; ok && other != string(p) {
		return fmt.Errorf("%s and %s: two databases have one name", other, p)
	}
	l.files[name] = string(p)
	l.file, l.open = Name{Fixed, name}, true
	l.all = append(l.all, logged{number: n})
	return nil
}

func (l *log) entry(fields []string) (e Entry, err error) {
	if len(fields[0]) != 1 {
		return e, errLog
	}
	e.Op, e.Bucket = Op(fields[0][0]), []Name{l.file}
	for text := range strings.SplitSeq(fields[1], "/") {
		name, nameErr := logName(text)
		err = errors.Join(err, nameErr)
		e.Bucket = append(e.Bucket, name)
	}
	switch e.Op {
	case Put, Delete:
		key, keyErr := logName(fields[2])
		err = errors.Join(err, keyErr)
		e.Key = key
	case Create, Drop:
	default:
		return e, errLog
	}
	size, sizeErr := strconv.Atoi(fields[3])
	if sizeErr != nil || size < 0 {
		return e, errLog
	}
	e.Size = size
	return e, err
}

func logName(text string) (Name, error) {
	b, err := hex.DecodeString(text)
	if err == nil && len(b) == 0 {
		err = errLog
	}
	return Name{Fixed, string(b)}, err
}
