package huaweicci

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The names of the signature's algorithm and headers.
const (
	algorithm           = "SDK-HMAC-SHA256"
	headerDate          = "X-Sdk-Date"
	headerSecurityToken = "X-Security-Token" //nolint:gosec // the name of a header
	headerProject       = "X-Project-Id"
	dateFormat          = "20060102T150405Z"
)

// signedHeaders are the headers that a signature covers, besides the host. Others may be
// changed on the way, or are added by the transport.
var signedHeaders = []string{headerDate, headerProject, headerSecurityToken}

// keys is an access key and its secret. The security token belongs to temporary ones.
type keys struct{ access, secret, securityToken string }

// sign signs a request with the given body. Its URL must have the host.
func (k keys) sign(request *http.Request, body []byte, at time.Time) {
	if k.securityToken != "" {
		request.Header.Set(headerSecurityToken, k.securityToken)
	}
	request.Header.Set(headerDate, at.UTC().Format(dateFormat))
	headers := map[string]string{"host": request.URL.Host}
	for _, name := range signedHeaders {
		if value := request.Header.Get(name); value != "" {
			headers[strings.ToLower(name)] = strings.TrimSpace(value)
		}
	}
	var names, lines []string
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lines = append(lines, name+":"+headers[name]+"\n")
	}
	canonical := strings.Join([]string{
		request.Method, canonicalPath(request.URL.Path), canonicalQuery(request.URL.Query()),
		strings.Join(lines, ""), strings.Join(names, ";"), hash(body),
	}, "\n")
	mac := hmac.New(sha256.New, []byte(k.secret))
	_, _ = mac.Write([]byte(algorithm + "\n" + headers["x-sdk-date"] + "\n" + hash([]byte(canonical)))) // never fails
	request.Header.Set("Authorization", fmt.Sprintf("%s Access=%s, SignedHeaders=%s, Signature=%s", algorithm, k.access, strings.Join(names, ";"), hex.EncodeToString(mac.Sum(nil))))
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// canonicalPath escapes each part of a path, and ends it with a slash.
func canonicalPath(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = escape(parts[i])
	}
	path = strings.Join(parts, "/")
	if !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

// canonicalQuery sorts parameters by name, and the values of each.
func canonicalQuery(query url.Values) string {
	var names, all []string
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range slices.Sorted(slices.Values(query[name])) {
			all = append(all, escape(name)+"="+escape(value))
		}
	}
	return strings.Join(all, "&")
}

// escape escapes all but the unreserved characters of RFC 3986.
func escape(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}
