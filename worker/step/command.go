package step

import (
	"strings"
	"unicode/utf8"

	"holdfast/worker/snapshot"
)

// This file is for those who look at results: what their command was, and what it wrote.

// LabelCommand is the label of a result with the command of its step, as a shell takes it, cut off after
// some hundred bytes.
const LabelCommand = "holdfast.step.command"

// maxCommandLabel is how many bytes of a command are in the label.
const maxCommandLabel = 256

// CommandText is a command as a shell takes it, cut off after some hundred bytes: the value of LabelCommand.
func CommandText(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(shellWord(arg))
		if b.Len() > maxCommandLabel {
			break
		}
	}
	text := strings.ToValidUTF8(b.String(), string(utf8.RuneError))
	if len(text) <= maxCommandLabel {
		return text
	}
	cut := maxCommandLabel - len("...")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// plainWord are the characters that mean nothing to a shell, besides letters and digits.
const plainWord = "-_./=:,+@%^"

// shellWord is a text as a shell takes it as one word.
func shellWord(s string) string {
	special := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(plainWord, r))
	}
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Recorded returns what Runners have recorded of a step whose results go to a namespace: ErrNotFound if nothing is, or what is recorded
// is of an earlier snapshot than the one that is there. No Runner of the store may be open. Unlike Lookup it does not ask whether the
// snapshot is still there.
func Recorded(t *snapshot.Namespace, id ID) (_ *Result, err error) {
	results, err := openResults(t.Store().Root(), 0, "", nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := results.close(); err == nil {
			err = e
		}
	}()
	return results.recorded(t, id)
}
