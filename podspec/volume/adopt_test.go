package volume

import (
	"encoding/base64"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"
)

// jwt is a token with these claims, in JSON.
func jwt(format string, args ...any) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, format, args...)) + ".c2ln"
}

func TestATokenFromBeforeIsRenewedByTheSameRule(t *testing.T) {
	for name, claims := range map[string]func(issued int64) string{
		"a token": func(issued int64) string { return jwt(`{"iat":%d,"exp":%d}`, issued, issued+3600) },
		"one that the API server has extended": func(issued int64) string {
			return jwt(`{"iat":%d,"exp":%d,"kubernetes.io":{"warnafter":%d}}`, issued, issued+365*24*3600, issued+3600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := newObjects()
				tokens := NewTokens(objects)
				old := claims(time.Now().Add(-30 * time.Minute).Unix())
				expect(t, "adopted", tokens.Adopt("uid-1", "", nil, old), true)
				expect(t, "the token", value(t, tokens, tokenPod()), old)
				time.Sleep(15 * time.Minute)
				expect(t, "the token, before its renewal is due", value(t, tokens, tokenPod()), old)
				time.Sleep(3*time.Minute + time.Second)
				expect(t, "the token, when its renewal is due", value(t, tokens, tokenPod()), "token1")
				expect(t, "an older one is adopted", tokens.Adopt("uid-1", "", nil, old), false)
				expect(t, "the token after that", value(t, tokens, tokenPod()), "token1")
			})
		})
	}
}

func TestATokenOfAClockThatIsAheadIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens(newObjects())
		now := time.Now().Unix()
		tokens.Adopt("uid-1", "", nil, jwt(`{"iat":%d,"exp":%d}`, now+600, now+4200))
		token, err := tokens.Token(t.Context(), tokenPod(), "", nil)
		if err != nil || time.Until(token.Renew) > 48*time.Minute {
			t.Errorf("its renewal is due after %s, want 48m at most: %v", time.Until(token.Renew), err)
		}
	})
}

func TestTokensOfUnknownLifeAreNotAdopted(t *testing.T) {
	now := time.Now().Unix()
	tokens := NewTokens(newObjects())
	for name, token := range map[string]string{
		"no JWT":                     "secret",
		"an empty one":               "",
		"one with no base64":         "a.!.c",
		"one with no JSON":           jwt("claims"),
		"one that never expires":     jwt(`{"iat":%d}`, now),
		"one that never began":       jwt(`{"exp":%d}`, now+60),
		"one that has expired":       jwt(`{"iat":%d,"exp":%d}`, now-61, now-1),
		"one that ends as it begins": jwt(`{"iat":%d,"exp":%d}`, now, now),
	} {
		expect(t, name+" is adopted", tokens.Adopt("uid-1", "", nil, token), false)
	}
	expect(t, "the token", value(t, tokens, tokenPod()), "token1")
}

func TestATokenIsAdoptedForItsRequest(t *testing.T) {
	tokens := NewTokens(newObjects())
	now := time.Now().Unix()
	old := jwt(`{"iat":%d,"exp":%d}`, now, now+3600)
	tokens.Adopt("uid-1", "vault", ptr.To[int64](3600), old)
	expect(t, "the token of another audience", value(t, tokens, tokenPod()), "token1")
	token, err := tokens.Token(t.Context(), tokenPod(), "vault", ptr.To[int64](3600))
	if err != nil || token.Value != old {
		t.Errorf("the token is %q, want the one from before: %v", token.Value, err)
	}
	expect(t, "the same again is the pod's", tokens.Adopt("uid-1", "vault", ptr.To[int64](3600), old), true)
}
