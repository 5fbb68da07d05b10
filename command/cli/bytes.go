package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast"
)

// Formats in which bytes are written and read.
var (
	OutputFormats = []string{"auto", "ascii-encoded", "hex", "bytes", "redacted"}
	InputFormats  = []string{"ascii-encoded", "hex"}
)

// CheckFormat returns an error of the command line unless format is in known.
func CheckFormat(flag, format string, known []string) error {
	if slices.Contains(known, format) {
		return nil
	}
	return Usagef("--%s: unsupported format: %s; there are %s", flag, format, strings.Join(known, ", "))
}

// FormatBytes writes b in one of outputFormats.
func FormatBytes(b []byte, format string) string {
	switch format {
	case "ascii-encoded":
		return fmt.Sprintf("%q", b)
	case "hex":
		return hex.EncodeToString(b)
	case "bytes":
		return string(b)
	case "redacted":
		return fmt.Sprintf("<redacted len:%d sha256:%x>", len(b), sha256.Sum256(b))
	}
	return Show(b)
}

// Show writes b as text if it can be printed, and in hexadecimal otherwise.
func Show(b []byte) string {
	if Printable(b) {
		return string(b)
	}
	return hex.EncodeToString(b)
}

// Printable tells whether b is UTF-8 of characters that can be printed.
func Printable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Quoted is what another program has said, in quotes and escaped unless all of it is text.
func Quoted(s string) string {
	if Printable([]byte(s)) {
		return s
	}
	return strconv.Quote(s)
}

// ParseBytes reads s in one of inputFormats. what names it in errors.
func ParseBytes(what, s, format string) ([]byte, error) {
	if format != "hex" {
		return []byte(s), nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, Usagef("%s %q is not hexadecimal: two digits for each byte", what, s)
	}
	return b, nil
}

// EncodeBytes gives b as a JSON string with the name of how it is encoded, so
// that nothing is lost: text, hex or base64, ascii-encoded, or redacted.
func EncodeBytes(b []byte, format string) (value, encoding string) {
	switch format {
	case "bytes":
		if utf8.Valid(b) {
			return string(b), "text"
		}
		return base64.StdEncoding.EncodeToString(b), "base64"
	case "auto":
		if Printable(b) {
			return string(b), "text"
		}
		return hex.EncodeToString(b), "hex"
	}
	return FormatBytes(b, format), format
}

// KVStringer writes keys and values as text if they can be printed, and in hexadecimal
// otherwise.
func KVStringer() holdfast.KVStringer { return Stringer{} }

// Stringer writes keys and values in messages of a check.
type Stringer struct{}

// KeyToString writes a key.
func (Stringer) KeyToString(b []byte) string { return Show(b) }

// ValueToString writes a value.
func (Stringer) ValueToString(b []byte) string { return Show(b) }

// BucketEntry is the name of a bucket in JSON, as EncodeBytes gives it.
type BucketEntry struct {
	Name     string `json:"name"`
	Encoding string `json:"encoding"`
}

// MaxShown is how many bytes of a name, a key or a value are shown where it need not be whole.
const MaxShown = 60

// Shorten writes s for messages.
func Shorten(s string) string { return Brief([]byte(s)) }

// Brief writes b for people, abbreviated if it is long.
func Brief(b []byte) string {
	if len(b) <= MaxShown {
		return Show(b)
	}
	head := b[:runeEnd(b, MaxShown)]
	if !Printable(head) {
		head = b[:MaxShown/2]
	}
	return fmt.Sprintf("%s... (%s)", Show(head), Plural(len(b), "byte"))
}

// BriefName is Brief of a name of a bucket in a path: a slash in it is none between names.
func BriefName(name []byte) string {
	if text := Brief(name); !Printable(name) || !strings.ContainsAny(text, `/\`) {
		return text
	}
	if len(name) <= MaxShown {
		return PathName(name)
	}
	return fmt.Sprintf("%s... (%s)", PathName(name[:runeEnd(name, MaxShown)]), Plural(len(name), "byte"))
}

// BriefPath writes the names of buckets in messages.
func BriefPath(path [][]byte) string {
	const most = 8
	s := ""
	for i, name := range path[:min(len(path), most)] {
		if i > 0 {
			s += "/"
		}
		s += BriefName(name)
	}
	if len(path) > most {
		s += fmt.Sprintf("/... (%d levels)", len(path))
	}
	return s
}
