package doctor

import (
	"regexp"
	"strings"
	"unicode"
)

// Much of what is printed is text of others: names of objects, messages of conditions,
// errors of servers. It must not be able to command the terminal that shows it, nor the
// shell into which a fix is pasted.

// maxText bounds a message, in bytes. An API server's error may have any length.
const maxText = 8000

// Plain returns text in one line that shows what it is: without control characters, or
// such as change the direction of the text, and not longer than maxText.
func Plain(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// harmless are words that a shell leaves as they are.
var harmless = regexp.MustCompile(`^[a-zA-Z0-9_@%+=:,./][a-zA-Z0-9_@%+=:,./-]*$`)

// Word returns a word of a command as it is to be written for a shell.
func Word(text string) string {
	if harmless.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
