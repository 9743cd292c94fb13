package fault_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

// proxied is an API server behind a proxy. It counts its requests, and answers
// watches line by line.
func proxied(t *testing.T) (transport *fault.Transport, address string, requests *atomic.Int32, lines chan string) {
	requests, lines = &atomic.Int32{}, make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Query().Get("watch") == "" {
			return
		}
		w.WriteHeader(http.StatusOK)
		for {
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case line := <-lines:
				_, _ = io.WriteString(w, line)
			}
		}
	}))
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport = fault.NewTransport(&http.Transport{DisableKeepAlives: true}, 1)
	proxy := httptest.NewServer(fault.NewProxy(target, transport))
	t.Cleanup(proxy.Close)
	return transport, proxy.URL, requests, lines
}

func request(t *testing.T, method, address string) (code int, header http.Header, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	_ = response.Body.Close()
	return response.StatusCode, response.Header, nil
}

func TestAnswersOfTheProxy(t *testing.T) {
	transport, address, requests, _ := proxied(t)
	for _, tc := range []struct {
		kind    fault.Kind
		method  string
		query   string
		code    int // 0: none
		reaches bool
	}{
		{fault.TooMany, "GET", "", 429, false},
		{fault.Internal, "GET", "", 500, false},
		{fault.Unavailable, "GET", "", 503, false},
		{fault.Conflict, "PATCH", "", 409, false},
		{fault.Conflict, "GET", "", 200, true},
		{fault.Expired, "GET", "?watch=true&resourceVersion=7", 410, false},
		{fault.Expired, "GET", "", 200, true},
		{fault.Refused, "PATCH", "", 0, false},
		{fault.LostAnswer, "PATCH", "", 0, true},
	} {
		transport.Break(fault.Plan{tc.kind: 1})
		before := requests.Load()
		code, header, err := request(t, tc.method, address+"/api/v1/pods"+tc.query)
		if code != tc.code || (code == 0) != (err != nil) || (requests.Load() > before) != tc.reaches {
			t.Errorf("%s of a %s%s: %d, %v, the server was reached: %t", tc.kind, tc.method, tc.query, code, err, requests.Load() > before)
		}
		if tc.kind == fault.TooMany && header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	transport.Calm()
	if code, _, err := request(t, "GET", address); code != 200 {
		t.Errorf("when calm: %d, %v", code, err)
	}
}

func TestPartitionCutsRequestsAndWatches(t *testing.T) {
	transport, address, _, lines := proxied(t)
	response, err := http.Get(address + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines <- "hello"
	if _, err := io.ReadFull(response.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	transport.Partition(time.Hour, false)
	if rest, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the watch ended in peace, with %q", rest)
	}
	if code, _, err := request(t, "GET", address); err == nil {
		t.Errorf("a request was answered with %d", code)
	}
	transport.Heal()
	if code, _, err := request(t, "GET", address); code != 200 {
		t.Errorf("after the partition: %d, %v", code, err)
	}
}

func TestPlansAreRead(t *testing.T) {
	plan, err := fault.ParsePlan(" error=0.3 410=1 ")
	if err != nil || plan.String() != "410=1 error=0.3" {
		t.Errorf("%v, %v", plan, err)
	}
	for _, text := range []string{"eror=1", "error", "error=2", "error=NaN"} {
		if plan, err := fault.ParsePlan(text); err == nil {
			t.Errorf("%q is read as %v", text, plan)
		}
	}
}
