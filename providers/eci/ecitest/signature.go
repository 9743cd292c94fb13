package ecitest

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// version is the version of the API.
const version = "2018-08-08"

// authenticate verifies the common parameters of all calls.
func (s *Server) authenticate(method string, p params) error {
	for _, name := range []string{"Action", "Version", "Format", "AccessKeyId", "SignatureMethod", "SignatureVersion", "SignatureNonce", "Timestamp", "Signature"} {
		if p[name] == "" {
			return missing(name)
		}
	}
	switch {
	case p["Version"] != version:
		return refuse(http.StatusBadRequest, "InvalidVersion", "Specified parameter Version is not valid.")
	case p["Format"] != "JSON":
		return refuse(http.StatusBadRequest, "UnsupportedFormat", "This fake answers in JSON only.")
	case p["SecurityToken"] != "" && p["SecurityToken"] != SecurityToken:
		return refuse(http.StatusBadRequest, "InvalidSecurityToken.Malformed", "Specified security token %q is malformed.", p["SecurityToken"])
	case p["AccessKeyId"] != AccessKey:
		return refuse(http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case p["SignatureMethod"] != "HMAC-SHA1":
		return refuse(http.StatusBadRequest, "InvalidSignatureMethod", "This fake verifies HMAC-SHA1 only.")
	}
	at, err := time.Parse(time.RFC3339, p["Timestamp"])
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return refuse(http.StatusBadRequest, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nonces[p["SignatureNonce"]] {
		return refuse(http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already.")
	}
	s.nonces[p["SignatureNonce"]] = true
	text := stringToSign(method, p)
	if !hmac.Equal([]byte(sign(text)), []byte(p["Signature"])) {
		// Like the real one, with all parameters in it.
		return refuse(http.StatusBadRequest, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:%s", text)
	}
	return nil
}

// stringToSign returns the string that the signature of a call is computed from.
func stringToSign(method string, p params) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if name != "Signature" {
			pairs = append(pairs, encode(name)+"="+encode(p[name]))
		}
	}
	return method + "&" + encode("/") + "&" + encode(strings.Join(pairs, "&"))
}

// encode is the percent encoding of RFC 3986.
func encode(text string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(url.QueryEscape(text))
}

func sign(text string) string {
	mac := hmac.New(sha1.New, []byte(SecretKey+"&"))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
