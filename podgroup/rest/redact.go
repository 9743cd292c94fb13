package rest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

const (
	// maxErrorText limits what of an answer an error shows.
	maxErrorText = 300
	// minSecret is how long a secret is: without shorter ones a text could not be read, and they
	// are guessed anyway.
	minSecret = 4
	// minShown is how much of the beginning of a longer secret counts as all of it.
	minShown = 16
	// minLine is how long a line of a secret is that counts as one.
	minLine = 8
	// hidden is shown instead of a secret.
	hidden = "[secret]"
)

// redact makes one short line of a text, without what is secret: services show what they have
// got, also in the forms in which it was sent, shorten it, and escape what they show.
func redact(text string, secrets []string) string {
	text = html.UnescapeString(text)
	forms := formsOf(secrets)
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, hidden)
	}
	text = maskBegun(text, forms)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}

// formsOf returns the forms of secrets, the longest first: one may begin another one.
func formsOf(secrets []string) (forms []string) {
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		forms = append(forms, encodingsOf(secret)...)
		if lines := strings.Split(secret, "\n"); len(lines) > 1 { // which may be indented
			for _, line := range lines {
				if line = strings.TrimSpace(line); len(line) >= minLine {
					forms = append(forms, encodingsOf(line)...)
				}
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(forms)
}

// encodingsOf returns a secret as it is, and as it may be sent or repeated.
func encodingsOf(secret string) []string {
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(secret) // a string
	escaped, _ := json.Marshal(secret)
	return []string{
		secret, html.UnescapeString(secret), strings.TrimSuffix(plain.String(), "\"\n")[1:], string(escaped[1 : len(escaped)-1]),
		url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
	}
}

// maskBegun masks secrets in a text that are cut off.
func maskBegun(text string, forms []string) string {
	for _, form := range forms {
		if len(form) <= minShown {
			break // the others are not longer
		}
		var masked strings.Builder
		for {
			at := strings.Index(text, form[:minShown])
			if at < 0 {
				break
			}
			shown := 0
			for _, form := range forms { // of those that begin alike it is the one that goes on longest
				shown = max(shown, commonLength(text[at:], form))
			}
			masked.WriteString(text[:at] + hidden)
			text = text[at+shown:]
		}
		text = masked.String() + text
	}
	return text
}

func commonLength(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
