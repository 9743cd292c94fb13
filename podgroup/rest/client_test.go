package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
)

// newClient returns a client of a server.
func newClient(t *testing.T, server http.HandlerFunc) *rest.Client {
	t.Helper()
	c := &rest.Client{Service: "Service", URL: "http://service/v1", Transport: grouptest.Serve(t, server).Transport(t)}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCalls(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL, r.Header.Get("Session"), r.Header.Get("Authorization"), body))
	})
	for want, call := range map[string]rest.Call{
		`POST /v1/units   {"a":1}`: {Method: http.MethodPost, Path: "/units", In: map[string]int{"a": 1}},
		`GET /v1/units?page=2 x  `: {Method: http.MethodGet, Path: "/units?page=2", Header: map[string]string{"session": "x"}},
		`PUT /v1/log   {as it is`:  {Method: http.MethodPut, Path: "/log", In: []byte("{as it is")},
	} {
		got := ""
		if err := c.Do(t.Context(), call, &got); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionList, Method: http.MethodGet}, &struct{}{}); !errdefs.IsUnavailable(err) {
		t.Errorf("an answer of another form: %v", err)
	}
	var raw []byte
	if err := c.Do(t.Context(), rest.Call{Method: http.MethodGet, Path: "/raw"}, &raw); err != nil || string(raw) != "\"GET /v1/raw   \"\n" {
		t.Errorf("an answer as it is: %q, %v", raw, err)
	}
	for _, token := range []*oauth2.Token{nil, {AccessToken: "abc"}} {
		want := `"GET /v1/log   "`
		if token != nil {
			want = `"GET /v1/log  Bearer abc "`
		}
		c.Token = func(context.Context) (*oauth2.Token, error) { return token, nil }
		body, err := c.Open(t.Context(), rest.Call{Method: http.MethodGet, Path: "/log"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if _ = body.Close(); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	const page, answer = "<html>no such\n page</html>", `{"message": "no"}`
	for _, test := range []struct {
		action podgroup.Action
		status int
		body   string
		header string // Retry-After
		is     func(error) bool
	}{
		{podgroup.ActionDelete, 404, answer, "", errdefs.IsNotFound},
		{podgroup.ActionDelete, 404, page, "", errdefs.IsUnavailable},
		{podgroup.ActionCreate, 400, answer, "", errdefs.IsPermanent},
		{podgroup.ActionCreate, 400, page, "", errdefs.IsUnavailable},
		{podgroup.ActionCreate, 409, answer, "", errdefs.IsConflict},
		{podgroup.ActionCreate, 500, answer, "", errdefs.IsUnavailable},
		{podgroup.ActionCreate, 307, page, "", errdefs.IsUnavailable},
		{podgroup.ActionList, 403, answer, "", isLater(time.Minute)},
		{podgroup.ActionList, 429, page, "40", isLater(40 * time.Second)},
		{podgroup.ActionList, 503, page, "7", isLater(7 * time.Second)},
		{podgroup.ActionList, 503, answer, "7", isLater(7 * time.Second)},
		{podgroup.ActionCreate, 500, answer, "7", isLater(7 * time.Second)},
	} {
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			if w.Header().Set("Location", "/v1/elsewhere"); r.URL.Path == "/v1/elsewhere" {
				return // a redirect was followed
			}
			if test.header != "" {
				w.Header().Set("Retry-After", test.header)
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		})
		err := c.Do(t.Context(), rest.Call{Action: test.action, Method: http.MethodPost}, nil)
		if !test.is(err) || rest.StatusOf(fmt.Errorf("wrapped: %w", err)) != test.status || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s, %d, %s: %v, of class %s", test.action, test.status, test.body, err, errdefs.ClassOf(err))
		}
	}
	c := &rest.Client{Service: "Service", URL: "http://service", Transport: nobody{}}
	if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionDelete, Method: http.MethodDelete}, nil); !errdefs.IsUnavailable(err) || rest.StatusOf(err) != 0 {
		t.Errorf("nobody answers: %v", err)
	}
}

// A service may have codes, and meanings of them, of its own.
func TestCodes(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "QuotaExceeded", http.StatusBadRequest) })
	c.Codes = &podgroup.Codes{Exhausted: []string{"create:Quota*"}}
	c.Code = func(action podgroup.Action, status int, body []byte) string {
		return fmt.Sprintf("%s:%s", action, body)
	}
	err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost}, nil)
	if !isLater(time.Minute)(err) || !errdefs.IsUnavailable(err) {
		t.Errorf("%v, of class %s", err, errdefs.ClassOf(err))
	}
}

func isLater(want time.Duration) func(error) bool {
	return func(err error) bool {
		delay, later := errdefs.RetryAfter(err)
		return later && delay == want
	}
}

// nobody is a transport to where nobody answers.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// A token is renewed a minute before it ends, and after an answer that it has ended.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, status := 0, http.StatusOK
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/token" {
				tokens++
				_, _ = fmt.Fprintf(w, `{"access_token": "token-%d", "expires_in": 3600}`, tokens)
				return
			}
			if r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-%d", tokens) {
				t.Errorf("token %d is %s", tokens, r.Header.Get("Authorization"))
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		})
		c.Token = (&clientcredentials.Config{TokenURL: "http://service/token", AuthStyle: oauth2.AuthStyleInParams}).Token
		ask := func() error {
			return c.Do(t.Context(), rest.Call{Action: podgroup.ActionList, Method: http.MethodGet, Path: "/units"}, nil)
		}
		for _, step := range []struct {
			wait   time.Duration
			status int
			tokens int // so far
		}{{0, 200, 1}, {58 * time.Minute, 200, 1}, {90 * time.Second, 200, 2}, {0, 401, 3}, {0, 200, 4}} {
			time.Sleep(step.wait)
			status = step.status
			if err := ask(); (err == nil) != (status == http.StatusOK) || tokens != step.tokens {
				t.Errorf("after %s, with %d: %d tokens, %v", step.wait, step.status, tokens, err)
			}
		}
	})
}

// That there is no token says nothing of the pod that is created, or the unit that is deleted.
func TestRefusedTokens(t *testing.T) {
	for status, is := range map[int]func(error) bool{400: isLater(time.Minute), 404: isLater(time.Minute), 401: isLater(time.Minute), 429: isLater(10 * time.Second), 502: errdefs.IsUnavailable} {
		for _, action := range []podgroup.Action{podgroup.ActionCreate, podgroup.ActionDelete} {
			c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error": "invalid_client"}`)
			})
			c.Token = (&clientcredentials.Config{TokenURL: "http://service/token", ClientSecret: "hush", AuthStyle: oauth2.AuthStyleInParams}).Token
			err := c.Do(t.Context(), rest.Call{Action: action, Method: http.MethodPost}, nil)
			if !is(err) || errdefs.IsPermanent(err) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "hush") {
				t.Errorf("%d: %v, of class %s", status, err, errdefs.ClassOf(err))
			}
		}
	}
	c := newClient(t, func(http.ResponseWriter, *http.Request) { t.Error("a request without a token") })
	c.Token = func(context.Context) (*oauth2.Token, error) { return nil, io.ErrUnexpectedEOF }
	if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost}, nil); !errdefs.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
}

// Services repeat what was sent, in other forms, too.
func TestSecrets(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("Authorization")+` it&#39;s a \u003csecret\u003e, aHVudGVyMg==, hunter2 of ab`+"\x1b[31m\n"+strings.Repeat("ü", 1000), http.StatusBadRequest)
	})
	c.Token = func(context.Context) (*oauth2.Token, error) { return &oauth2.Token{AccessToken: "the-token"}, nil }
	err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost, Secrets: []string{"hunter2", "a <secret>", "ab", ""}}, nil)
	const want = `Service refuses to create: 400 Bad Request: Bearer [secret] it's [secret], [secret], [secret] of ab [31m üü`
	if err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 400 || !strings.HasSuffix(err.Error(), "ü...") {
		t.Errorf("%q", err)
	}
}

// What is shown of a secret is none of it, however it is written, and also if it is cut off.
func TestFormsOfSecrets(t *testing.T) {
	const key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEFAASC\n-----END KEY-----\n"
	secrets := []string{"pass", "password-123", "p&lt;w<d", `say "<hi>"`, "a b/c+d", key, "0123456789abcdef-first", "0123456789abcdef-second-one"}
	for text, want := range map[string]string{
		"no password-123":                                "no [secret]",
		"no p&lt;w<d":                                    "no [secret]",
		`{"a": "say \"<hi>\""}`:                          `{"a": "[secret]"}`,
		`{"a": "say \"\u003chi\u003e\""}`:                `{"a": "[secret]"}`,
		"/x?q=a+b%2Fc%2Bd&r=1":                           "/x?q=[secret]&r=1",
		"/x/a%20b%2Fc+d":                                 "/x/[secret]",
		"YSBiL2MrZA==.YSBiL2MrZA":                        "[secret].[secret]",
		"key: |\n  MIIEvQIBADANBg\n  kqhkiG9w0BAQEFAASC": "key: | [secret] [secret]",
		`"` + strings.ReplaceAll(key, "\n", `\n`) + `"`:  `"[secret]"`,
		"it is 0123456789abcdef-se...":                   "it is [secret]...",
		"it is 0123456789abcdef-first":                   "it is [secret]",
		"it is 0123456789abcdef":                         "it is [secret]",
		"it is 0123456789abcde":                          "it is 0123456789abcde",
	} {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, text)
		})
		c.Secrets = secrets[:2]
		err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost, Secrets: secrets[2:]}, nil)
		if want = "Service refuses to create: 400 Bad Request: " + want; err == nil || err.Error() != want {
			t.Errorf("of %s it is\n%v\nand not\n%s", text, err, want)
		}
	}
}

// An answer that is too long is an error, and is not cut off: half a list would be half of the pods.
func TestLongAnswers(t *testing.T) {
	const most = 64 << 20
	for size, long := range map[int64]bool{most: false, most + 1: true, most << 10: true} {
		c := &rest.Client{Service: "Service", URL: "http://service", Transport: answering(func() io.Reader { return io.LimitReader(zeros{}, size) })}
		var raw []byte
		for _, out := range []any{nil, &raw} {
			if size > most+1 && out != nil {
				continue
			}
			err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionList, Method: http.MethodGet}, out)
			if long && (!errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "longer than 64 MiB") || raw != nil) || !long && err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if !long && len(raw) != most {
			t.Errorf("%d bytes are %d", size, len(raw))
		}
	}
	for _, body := range []string{"", "<html>", `{"a": [1, 2`, "[]"} {
		c := &rest.Client{Service: "Service", URL: "http://service", Transport: answering(func() io.Reader { return strings.NewReader(body) })}
		if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionList, Method: http.MethodGet}, &struct{ A []int }{}); !errdefs.IsUnavailable(err) {
			t.Errorf("the answer %q: %v", body, err)
		}
	}
	cut := answering(func() io.Reader { return io.MultiReader(strings.NewReader(`{"a": [1]}`), broken{}) })
	c := &rest.Client{Service: "Service", URL: "http://service", Transport: cut}
	for _, out := range []any{&struct{ A []int }{}, nil} {
		if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionDelete, Method: http.MethodDelete}, out); !errdefs.IsUnavailable(err) {
			t.Errorf("an answer that is cut off: %v", err)
		}
	}
}

// answering is a transport to a server whose answers are all the same.
type answering func() io.Reader

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Body: io.NopCloser(a()), Request: r}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A redirect goes nowhere, in any form: another host would get the token, and what is sent.
func TestRedirects(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, body := range []string{"", `{"moved": true}`} {
			c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Host != "service" {
					t.Errorf("%s gets %v", r.Host, r.Header)
				}
				w.Header().Set("Location", "http://elsewhere/v1")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
			for _, token := range []func(context.Context) (*oauth2.Token, error){
				func(context.Context) (*oauth2.Token, error) { return &oauth2.Token{AccessToken: "the-token"}, nil },
				(&clientcredentials.Config{TokenURL: "http://service/token", ClientSecret: "hush", AuthStyle: oauth2.AuthStyleInParams}).Token,
			} {
				c.Token = token
				if err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPost}, nil); !errdefs.IsUnavailable(err) {
					t.Errorf("%d %s: %v, of class %s", status, body, err, errdefs.ClassOf(err))
				}
			}
		}
	}
}

func TestSameHost(t *testing.T) {
	for next, want := range map[string]bool{
		"http://service/b": true, "https://service/a": true, "https://service:8443/a": true, "http://service:8080/a": false, "http://elsewhere/a": false, "https://elsewhere/a": false, "http://service.evil/a": false,
	} {
		requests := 0
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			if requests++; requests > 1 {
				return answering(func() io.Reader { return strings.NewReader("") }).RoundTrip(r)
			}
			return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {next}}, Body: http.NoBody, Request: r}, nil
		})
		client := http.Client{Transport: transport, CheckRedirect: rest.SameHost}
		response, err := client.Post("http://service/a", "text/plain", strings.NewReader("secret"))
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); (requests == 2) != want || (response.StatusCode == http.StatusOK) != want {
			t.Errorf("%s: %d requests, status %d", next, requests, response.StatusCode)
		}
	}
	requests := 0
	circle := roundTripper(func(r *http.Request) (*http.Response, error) {
		requests++
		return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"/a"}}, Body: http.NoBody, Request: r}, nil
	})
	response, err := (&http.Client{Transport: circle, CheckRedirect: rest.SameHost}).Get("https://service/a")
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); requests != 11 {
		t.Errorf("%d requests", requests)
	}
	downgrade := &http.Request{URL: &url.URL{Scheme: "http", Host: "service"}}
	if err := rest.SameHost(downgrade, []*http.Request{{URL: &url.URL{Scheme: "https", Host: "service"}}}); err == nil {
		t.Error("a redirect from TLS to none is followed")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The address of a call that nobody answers is shown without what may be secret.
func TestAddresses(t *testing.T) {
	c := &rest.Client{Service: "Service", URL: "http://me:hunter2@service", Transport: nobody{}}
	for path, want := range map[string]string{
		"/exec?command=hunter2": "cannot ask Service to exec: Get http://me:xxxxx@service/exec: unexpected EOF",
		"/%zz?command=hunter2":  `cannot ask Service to exec: parse an address that is not valid: invalid URL escape "%zz"`,
	} {
		err := c.Do(t.Context(), rest.Call{Action: podgroup.ActionExec, Method: http.MethodGet, Path: path}, nil)
		if !errdefs.IsUnavailable(err) || err.Error() != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := c.Do(t.Context(), rest.Call{Method: http.MethodGet}, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// Calls at the same time share a token: also those whose token is refused, of which each is made
// once more. One that does not wait any more leaves the others alone.
func TestConcurrentTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens, revoked, calls atomic.Int64
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			body, _ := io.ReadAll(r.Body)
			if time.Sleep(time.Second); r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-%d", revoked.Load()+1) || string(body) != `"in"` {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, "{}")
		})
		c.Token = func(ctx context.Context) (*oauth2.Token, error) {
			select {
			case <-time.After(time.Second):
				return &oauth2.Token{AccessToken: fmt.Sprintf("token-%d", tokens.Add(1))}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		ask := func(ctx context.Context) error {
			return c.Do(ctx, rest.Call{Action: podgroup.ActionList, Method: http.MethodPost, In: "in"}, nil)
		}
		round := func() {
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					if err := ask(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var first sync.WaitGroup
		first.Go(func() {
			if err := ask(ended); !errdefs.IsUnavailable(err) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		round()
		if first.Wait(); tokens.Load() != 1 || calls.Load() != 20 {
			t.Errorf("%d tokens for %d calls", tokens.Load(), calls.Load())
		}
		revoked.Store(1)
		if round(); tokens.Load() != 2 || calls.Load() != 60 {
			t.Errorf("%d tokens for %d calls", tokens.Load(), calls.Load())
		}
		revoked.Store(-1) // no token is any good
		if err := ask(t.Context()); rest.StatusOf(err) != http.StatusUnauthorized || tokens.Load() != 3 || calls.Load() != 62 {
			t.Errorf("%d tokens for %d calls: %v", tokens.Load(), calls.Load(), err)
		}
	})
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%q", r.Host) })}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	c := &rest.Client{URL: "http://unix", Transport: rest.NewTransport(path)}
	host := ""
	if err := c.Do(t.Context(), rest.Call{Method: http.MethodGet, Path: "/x"}, &host); err != nil || host != "unix" {
		t.Errorf("%q, %v", host, err)
	}
	_, _ = c.Close(), server.Close()
	<-done
}
