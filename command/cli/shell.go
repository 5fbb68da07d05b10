package cli

import (
	"strings"
	"unicode"
)

// ShellWord writes s so that a shell reads it as one word.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+:@%,=", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) && s[0] != '-' {
		return s
	}
	if OneLine(s) != s { // as bash and others read it, and a terminal does nothing but show it
		return "$'" + OneLine(strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s)) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
