package command

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
	"holdfast/command/cli"
)

// Formats in which bytes are written and read.
var (
	outputFormats = []string{"auto", "ascii-encoded", "hex", "bytes", "redacted"}
	inputFormats  = []string{"ascii-encoded", "hex"}
)

// checkFormat returns an error of the command line unless format is in known.
func checkFormat(flag, format string, known []string) error {
	if slices.Contains(known, format) {
		return nil
	}
	return usagef("--%s: unsupported format: %s; there are %s", flag, format, strings.Join(known, ", "))
}

// formatBytes writes b in one of outputFormats.
func formatBytes(b []byte, format string) string {
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
	return show(b)
}

// show writes b as text if it can be printed, and in hexadecimal otherwise.
func show(b []byte) string {
	if printable(b) {
		return string(b)
	}
	return hex.EncodeToString(b)
}

func printable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
}

// oneLine writes what another program has said, of which nothing reaches a terminal but text.
func oneLine(s string) string {
	if printable([]byte(s)) {
		return s
	}
	return strconv.Quote(s)
}

// parseBytes reads s in one of inputFormats. what names it in errors.
func parseBytes(what, s, format string) ([]byte, error) {
	if format != "hex" {
		return []byte(s), nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, usagef("%s %q is not hexadecimal: two digits for each byte", what, s)
	}
	return b, nil
}

// encodeBytes gives b as a JSON string with the name of how it is encoded, so
// that nothing is lost: text, hex or base64, ascii-encoded, or redacted.
func encodeBytes(b []byte, format string) (value, encoding string) {
	switch format {
	case "bytes":
		if utf8.Valid(b) {
			return string(b), "text"
		}
		return base64.StdEncoding.EncodeToString(b), "base64"
	case "auto":
		if printable(b) {
			return string(b), "text"
		}
		return hex.EncodeToString(b), "hex"
	}
	return formatBytes(b, format), format
}

// shellQuote writes s so that a shell reads it as one word.
func shellQuote(s string) string {
	return cli.ShellWord(s)
}

// KVStringer writes keys and values as text if they can be printed, and in hexadecimal
// otherwise.
func KVStringer() holdfast.KVStringer { return stringer{} }

// stringer writes keys and values in messages of a check.
type stringer struct{}

func (stringer) KeyToString(b []byte) string   { return show(b) }
func (stringer) ValueToString(b []byte) string { return show(b) }
