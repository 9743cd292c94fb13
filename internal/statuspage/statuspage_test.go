package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostile is what a pod, or a backend, may put in a text.
const hostile = "<script>alert(1)</script>\"'>\r\rdata: x\n\nevent: y\n\x1b[2J\u202e"

var now = time.Now()

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

func aStatus(pods int) *Status {
	s := &Status{Node: "vk", Time: *ago(0), Started: *ago(time.Hour), Version: "v1", Nodes: 3, ReadyNodes: 2,
		Checks: []Check{{Name: "lease", Last: ago(3 * time.Second)}, {Name: "provider", Error: hostile}},
		Queues: []Queue{{Name: "sync_pods_from_kubernetes", Waiting: 1}},
		Calls:  []Method{{Name: "CreatePod", InFlight: 1, Oldest: ago(time.Minute), Minutes: []Minute{{Calls: 4, Errors: 1, Seconds: 8}, {}}}},
		Events: []Event{{Time: *ago(time.Minute), Type: corev1.EventTypeWarning, Reason: "Failed", Object: "Pod a/b", Message: hostile, Count: 3}}}
	for i := range pods {
		s.Pods = append(s.Pods, Pod{Namespace: "default", Name: fmt.Sprintf("web-%d", i), Phase: corev1.PodRunning, Requested: ago(2 * time.Hour), Seen: ago(time.Hour)})
	}
	return s
}

// What others write is shown as they wrote it, and runs nothing.
func TestTextsOfOthersAreEscaped(t *testing.T) {
	s := aStatus(1)
	s.Pods[0].Error = hostile
	s.Pods[0].Waiting = hostile
	page := string(s.HTML())
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("the message is not shown")
	}
	data := string(event(s.Main()))
	if strings.ContainsAny(strings.TrimSuffix(data, "\n\n"), "\r\n") {
		t.Errorf("a message ends the event: %q", data)
	}
	var text strings.Builder
	s.Node, s.Checks[1].Name, s.Queues[0].Name, s.Calls[0].Name = hostile, hostile, hostile, hostile
	if err := s.Text(&text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String()+s.Line(), "\x1b\r\u202e") {
		t.Errorf("a message moves the cursor: %q, %q", text.String(), s.Line())
	}
}

func TestShorten(t *testing.T) {
	for _, text := range []string{"", "no room", strings.Repeat("x", maxText)} {
		if got := Shorten(text); got != text {
			t.Errorf("of %q: %q", text, got)
		}
	}
	for _, letter := range []string{"x", "é", "語"} { // of 1, 2 and 3 bytes
		got := Shorten("x" + strings.Repeat(letter, 1<<20))
		if rest := strings.TrimSuffix(got, "..."); len(got) > maxText+3 || len(rest) < maxText-3 || strings.Trim(rest, "x"+letter) != "" {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
}

// Pods with problems are not pushed off the page by those that are well.
func TestPodsWithProblemsComeFirst(t *testing.T) {
	s := aStatus(5000)
	s.Pods[4321].Error = "no room"
	s.Pods[4321].Tries, s.Pods[4321].NextTry = 7, &metav1.Time{Time: s.Time.Add(90 * time.Second)}
	s.Pods[4000].Phase = corev1.PodPending
	page := string(s.HTML())
	bad, pending, well := strings.Index(page, "default/web-4321<"), strings.Index(page, "default/web-4000<"), strings.Index(page, "default/web-0<")
	if bad < 0 || pending < bad || well < pending {
		t.Errorf("the pods are at %d, %d and %d", bad, pending, well)
	}
	for _, want := range []string{"no room; tried 7 times; next in 90s", "1 Pending, 4999 Running", "and 4800 more"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if len(page) > 200_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

func TestText(t *testing.T) {
	s := aStatus(1)
	var text strings.Builder
	if err := s.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"vk: not ready", "default/web-0   Running", "CreatePod", "4       1        2s     1, since 60s", "sync_pods_from_kubernetes   1         0"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// Browsers get HTML with a policy that lets nothing else run, programs JSON.
func TestHandler(t *testing.T) {
	take := func(*http.Request) *Status { return aStatus(2) }
	handler := Handler(NewWatchers(), take)
	ask := func(accept string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/status", nil)
		r.Header.Set("Accept", accept)
		handler.ServeHTTP(w, r)
		return w
	}
	w := ask("text/html,application/xhtml+xml,*/*;q=0.8")
	if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("a browser gets %q", got)
	}
	if got := w.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
		t.Errorf("the policy is %q", got)
	}
	var s Status
	if err := json.Unmarshal(ask("application/json").Body.Bytes(), &s); err != nil || len(s.Pods) != 2 {
		t.Errorf("a program gets %d pods, %v", len(s.Pods), err)
	}
}

// A page that is watched is sent again and again, until its reader or the server ends; and
// nobody can watch so many that the process does nothing else.
func TestWatch(t *testing.T) {
	watchers := NewWatchers()
	server := httptest.NewServer(Handler(watchers, func(*http.Request) *Status { return aStatus(1) }))
	defer server.Close()
	watch := func(ctx context.Context) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/status?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxWatchers {
		response := watch(ctx)
		defer response.Body.Close()
		if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("%s: %q", response.Status, got)
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "data: <h1>vk") {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
	}
	response := watch(t.Context())
	response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more watcher: %s", response.Status)
	}
	cancel()
	for range maxWatchers { // all places are free again
		watchers <- struct{}{}
	}
}
