package volume

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Adopt adopts a token that a pod was given before a restart of this process, as
// the answer to the request with that audience and those seconds: Token returns it
// until its renewal is due, by the rule for those that it requests. It reports whether
// the pod has the token then.
//
// Only a token that says from when and for how long it is valid, and has not
// expired, is adopted, and none in place of another. Its signature is not verified:
// the servers that the token is shown to do that.
func (t *Tokens) Adopt(uid types.UID, audience string, seconds *int64, value string) bool {
	key := keyOf(audience, seconds)
	if known := t.get(uid, key); known.Value != "" {
		return known.Value == value
	}
	now := time.Now().Round(0)
	issued, life, ok := claimsOf(value)
	if !ok || !now.Before(issued.Add(life)) {
		return false
	}
	if issued.After(now) { // by a clock that is ahead
		issued = now
	}
	t.set(uid, key, held{
		Token:   Token{Value: value, Renew: issued.Add(renewal(life))},
		expires: issued.Add(life),
	})
	return true
}

// claimsOf reads from when a token is valid, and for how long: as the API server
// answered when it gave the token. That is shorter than the token says where the
// API server extends tokens for clients that never read them again.
func claimsOf(token string) (issued time.Time, life time.Duration, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, 0, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, 0, false
	}
	var claims struct {
		IssuedAt   int64 `json:"iat"`
		Expires    int64 `json:"exp"`
		Kubernetes struct {
			WarnAfter int64 `json:"warnafter"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.IssuedAt <= 0 || claims.Expires <= claims.IssuedAt {
		return time.Time{}, 0, false
	}
	end := claims.Expires
	if after := claims.Kubernetes.WarnAfter; after > claims.IssuedAt && after < end {
		end = after
	}
	return time.Unix(claims.IssuedAt, 0), time.Duration(end-claims.IssuedAt) * time.Second, true
}
