package cli

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// quoteStep is how many bytes are quoted at a time.
const quoteStep = 4096

// WriteBytes writes b in one of outputFormats, as formatBytes has it, without a copy of
// it in memory.
func WriteBytes(w io.Writer, b []byte, format string) error {
	var err error
	switch {
	case format == "ascii-encoded":
		return writeQuoted(w, b)
	case format == "bytes" || format == "auto" && Printable(b):
		_, err = w.Write(b)
	case format == "hex" || format == "auto":
		_, err = hex.NewEncoder(w).Write(b)
	default:
		_, err = io.WriteString(w, FormatBytes(b, format))
	}
	return err
}

// writeQuoted writes b as fmt's %q does.
func writeQuoted(w io.Writer, b []byte) error {
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	for len(b) > 0 {
		n := len(b)
		if n > quoteStep {
			n = runeEnd(b, quoteStep)
		}
		quoted := strconv.Quote(string(b[:n]))
		if _, err := io.WriteString(w, quoted[1:len(quoted)-1]); err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// WriteKey writes a key as bbolt's page command does: quoted text, or hexadecimal.
func WriteKey(w io.Writer, key []byte) error {
	if Printable(key) {
		return writeQuoted(w, key)
	}
	_, err := hex.NewEncoder(w).Write(key)
	return err
}

// shownBytes is how much is shown of a value that is cut off.
const shownBytes = 64

// WriteCut writes a value for people; of a long one, the beginning and how long it is.
func WriteCut(w io.Writer, b []byte) error {
	if len(b) <= shownBytes {
		return WriteBytes(w, b, "auto")
	}
	if Printable(b) {
		_, err := fmt.Fprintf(w, "%s... (%s)", b[:runeEnd(b, shownBytes)], Plural(len(b), "byte"))
		return err
	}
	_, err := fmt.Fprintf(w, "%x... (%s)", b[:shownBytes/2], Plural(len(b), "byte"))
	return err
}

// runeEnd is where b, which is longer than n bytes, is cut off after at most n of them and
// not in the middle of a character: at n if what is there is no text.
func runeEnd(b []byte, n int) int {
	for back := range min(utf8.UTFMax, n) {
		if utf8.RuneStart(b[n-back]) {
			return n - back
		}
	}
	return n
}
