package ccigateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"
)

// maxSkew is how far the clock of a client may be off.
const maxSkew = 15 * time.Minute

// authenticate checks the token or the signature of a request, as the API Request Signing
// Guide describes it.
func (g *Gateway) authenticate(r *http.Request, body []byte) *failure {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		if expires, ok := g.tokens[token]; !ok || g.now().After(expires) {
			return unauthorized("decrypt token fail")
		}
		return nil
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "SDK-HMAC-SHA256 ")
	if !ok {
		return unauthorized("neither a token nor a signature")
	}
	parts := map[string]string{}
	for _, part := range strings.Split(rest, ", ") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	date := r.Header.Get("X-Sdk-Date")
	at, err := time.Parse("20060102T150405Z", date)
	signed := strings.Split(parts["SignedHeaders"], ";")
	switch {
	case parts["Access"] != AccessKey:
		return unauthorized("get access key fail")
	case err != nil || g.now().Sub(at).Abs() > maxSkew:
		return unauthorized("signature expired")
	case !sort.StringsAreSorted(signed) || !contains(signed, "host") || !contains(signed, "x-sdk-date"):
		return unauthorized("the signature does not cover host and x-sdk-date")
	case r.Header.Get("X-Project-Id") != "" && r.Header.Get("X-Project-Id") != ProjectID:
		return unauthorized("no such project")
	}
	for _, name := range []string{"X-Project-Id", "X-Security-Token"} {
		if r.Header.Get(name) != "" && !contains(signed, strings.ToLower(name)) {
			return unauthorized(name + " is not signed")
		}
	}
	var text strings.Builder
	path := ""
	for _, part := range strings.Split(strings.Trim(r.URL.Path, "/"), "/") {
		path += "/" + escaped(part)
	}
	fmt.Fprintf(&text, "%s\n%s/\n%s\n", r.Method, path, sortedQuery(r))
	for _, name := range signed {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&text, "%s:%s\n", name, value)
	}
	fmt.Fprintf(&text, "\n%s\n%x", parts["SignedHeaders"], sha256.Sum256(body))
	mac := hmac.New(sha256.New, []byte(SecretKey))
	fmt.Fprintf(mac, "SDK-HMAC-SHA256\n%s\n%x", date, sha256.Sum256([]byte(text.String())))
	if fmt.Sprintf("%x", mac.Sum(nil)) != parts["Signature"] {
		return unauthorized("verify aksk signature fail")
	}
	return nil
}

func unauthorized(why string) *failure {
	return &failure{status: http.StatusUnauthorized, code: "APIGW.0301", detail: "Incorrect IAM authentication information: " + why}
}

func contains(all []string, one string) bool {
	i := sort.SearchStrings(all, one)
	return i < len(all) && all[i] == one
}

// sortedQuery returns the parameters of a request, sorted by name and value.
func sortedQuery(r *http.Request) string {
	type parameter struct{ name, value string }
	var all []parameter
	for name, values := range r.URL.Query() {
		for _, value := range values {
			all = append(all, parameter{name, value})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		return all[i].name < all[j].name || all[i].name == all[j].name && all[i].value < all[j].value
	})
	var text []string
	for _, p := range all {
		text = append(text, escaped(p.name)+"="+escaped(p.value))
	}
	return strings.Join(text, "&")
}

// escaped returns text with all but letters, digits and -_.~ as %XX.
func escaped(text string) string {
	var to strings.Builder
	for _, b := range []byte(text) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-_.~", b) >= 0:
			to.WriteByte(b)
		default:
			fmt.Fprintf(&to, "%%%02X", b)
		}
	}
	return to.String()
}
