package rest

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"strings"
	"unicode"
)

const (
	// maxErrorText limits what of an answer an error shows.
	maxErrorText = 300
	// minSecret is how long a secret is: without shorter ones a text could not be read, and they
	// are guessed anyway.
	minSecret = 4
)

// redact makes one short line of a text, without what is secret: services show what they have
// got, also in the forms in which it was sent, and escape what they show.
func redact(text, token string, secrets []string) string {
	text = html.UnescapeString(text)
	for _, secret := range append([]string{token}, secrets...) {
		if len(secret) < minSecret {
			continue
		}
		quoted, _ := json.Marshal(secret) // a string
		for _, form := range []string{secret, string(quoted[1 : len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(secret))} {
			text = strings.ReplaceAll(text, form, "[secret]")
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}
