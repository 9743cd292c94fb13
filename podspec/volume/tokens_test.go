package volume

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func tokenPod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "pod", "ns", "uid-1"
	return pod
}

func TestTokenRequest(t *testing.T) {
	objects := newObjects()
	pod := tokenPod()
	tokens := NewTokens(objects)
	for _, account := range []string{"", "robot"} {
		pod.Spec.ServiceAccountName = account
		if _, err := tokens.Token(t.Context(), pod, "vault"+account, ptr.To[int64](600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokens.Token(t.Context(), pod, "", nil); err != nil {
		t.Fatal(err)
	}
	expect(t, "the account", objects.accounts[0], "ns/default")
	expect(t, "the account", objects.accounts[1], "ns/robot")
	spec := objects.requests[0].Spec
	expect(t, "the bound object", *spec.BoundObjectRef, authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "uid-1"})
	expect(t, "the audience", spec.Audiences[0], "vault")
	expect(t, "the expiration", *spec.ExpirationSeconds, 600)
	spec = objects.requests[2].Spec
	expect(t, "the number of audiences", len(spec.Audiences), 0)
	expect(t, "no expiration", spec.ExpirationSeconds, nil)

	lasting := NewTokens(objects)
	lasting.MinLifetime = 2 * time.Hour
	for i, c := range []struct {
		asked *int64
		want  int64
	}{{nil, 7200}, {ptr.To[int64](600), 7200}, {ptr.To[int64](9000), 9000}} {
		if _, err := lasting.Token(t.Context(), pod, "", c.asked); err != nil {
			t.Fatal(err)
		}
		expect(t, "the expiration", *objects.requests[3+i].Spec.ExpirationSeconds, c.want)
	}
}

// get asks once and says which token it was.
func value(t *testing.T, tokens *Tokens, pod *corev1.Pod) string {
	t.Helper()
	token, err := tokens.Token(t.Context(), pod, "", nil)
	if err != nil {
		return err.Error()
	}
	if !token.Renew.After(time.Now()) {
		t.Errorf("the renewal of %s is due at once", token.Value)
	}
	return token.Value
}

func TestTokensAreRenewed(t *testing.T) {
	for name, tc := range map[string]struct{ life, never, ever time.Duration }{
		"an hour": {time.Hour, 45 * time.Minute, 48*time.Minute + time.Second},
		"a week":  {7 * 24 * time.Hour, 22 * time.Hour, 24*time.Hour + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := newObjects()
				objects.life = int64(tc.life.Seconds())
				tokens := NewTokens(objects)
				expect(t, "the token", value(t, tokens, tokenPod()), "token1")
				time.Sleep(tc.never)
				expect(t, "the token, before its renewal is due", value(t, tokens, tokenPod()), "token1")
				time.Sleep(tc.ever - tc.never)
				expect(t, "the token, when its renewal is due", value(t, tokens, tokenPod()), "token2")
			})
		})
	}
}

// Renewals of pods that began together spread.
func TestTokensSpread(t *testing.T) {
	times := map[time.Duration]bool{}
	for range 10 {
		times[renewal(time.Hour)] = true
	}
	expect(t, "the renewal of a token that does not live", renewal(0), minTokenAge)
	if len(times) < 2 {
		t.Error("there is no jitter")
	}
}

func TestFailedRenewalKeepsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := newObjects()
		tokens := NewTokens(objects)
		value(t, tokens, tokenPod())
		objects.tokenErr = errors.New("away")

		time.Sleep(50 * time.Minute)
		expect(t, "the token, while it is valid", value(t, tokens, tokenPod()), "token1")
		expect(t, "the token, again", value(t, tokens, tokenPod()), "token1")
		expect(t, "the number of requests: it is not tried at each call", len(objects.requests), 2)
		time.Sleep(renewRetry)
		value(t, tokens, tokenPod())
		expect(t, "the number of requests, some time later", len(objects.requests), 3)

		time.Sleep(10 * time.Minute)
		expect(t, "the error, when it is not valid", value(t, tokens, tokenPod()), "away")
		objects.tokenErr = nil
		expect(t, "the token, at last", value(t, tokens, tokenPod()), "token5")
	})
}

func TestTokensGoWithThePod(t *testing.T) {
	objects := newObjects()
	tokens := NewTokens(objects)
	value(t, tokens, tokenPod())
	other := tokenPod()
	other.UID = "uid-2"
	expect(t, "the token of another pod", value(t, tokens, other), "token2")
	tokens.Forget("uid-1")
	expect(t, "the number of pods with tokens", len(tokens.pods), 1)
	expect(t, "the token", value(t, tokens, tokenPod()), "token3")
}

func TestAnswersOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := newObjects()
		objects.answer = func(a *authenticationv1.TokenRequest) { a.Status.Token = "" }
		_, err := NewTokens(objects).Token(t.Context(), tokenPod(), "", nil)
		expectError(t, err, "no token")

		objects.answer = func(a *authenticationv1.TokenRequest) {
			a.Spec.ExpirationSeconds = nil
			a.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(100 * time.Minute))
		}
		token, err := NewTokens(objects).Token(t.Context(), tokenPod(), "", nil)
		expectError(t, err, "")
		if after := time.Until(token.Renew); after < 75*time.Minute || after > 80*time.Minute {
			t.Errorf("it is renewed after %s, want about 80m", after)
		}
	})
}
