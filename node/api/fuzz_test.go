package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// FuzzParseLogQuery compares with what the Kubernetes API makes of a query.
func FuzzParseLogQuery(f *testing.F) {
	for _, query := range []string{
		"", "follow=true&tailLines=0", "tail=all", "tail=5&tailLines=x", "limitBytes=0", "sinceSeconds=1&sinceTime=2026-11-21T02:03:04Z",
		"sinceTime=null", "tailLines=9223372036854775807", "stream=All", "stream=Stdout&tailLines=1", "stream=", "%zz", "a=b;c=d",
		"follow&previous=0&timestamps=False", "sinceTime=2026-11-21T02:03:04%2B01:00", "tailLines=1&tailLines=2",
	} {
		f.Add(query)
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseLogQuery(raw, now)
		if err != nil && got != (logQuery{}) {
			t.Fatalf("%q: %+v with %v", raw, got, err)
		}
		values, malformed := url.ParseQuery(raw)
		if values.Get("tail") != "" {
			return // the API has no such parameter
		}
		want, err2 := decodeLogOptions(values)
		switch valid := validLogOptions(&want); {
		case malformed != nil || err2 != nil:
			if err != errLogQuery {
				t.Fatalf("%q is no query: %+v, %v", raw, got, err)
			}
		case !valid:
			if err != errLogRequest {
				t.Fatalf("%q is not valid: %+v, %v", raw, got, err)
			}
		case err != nil:
			t.Fatalf("%q is valid: %v", raw, err)
		default:
			compareLogQuery(t, raw, got, &want, now)
		}
	})
}

// decodeLogOptions has the rules by which the API reads parameters: the first
// value counts, and any word but 0 and false is true.
func decodeLogOptions(values url.Values) (o v1.PodLogOptions, err error) {
	for name, to := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		given, ok := values[name]
		*to = ok && given[0] != "0" && !strings.EqualFold(given[0], "false")
	}
	for name, to := range map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &o.SinceSeconds} {
		if given, ok := values[name]; ok {
			n, nerr := strconv.ParseInt(given[0], 10, 64)
			*to, err = &n, errors.Join(err, nerr)
		}
	}
	if given, ok := values["stream"]; ok {
		o.Stream = &given[0]
	}
	if given := values.Get("sinceTime"); given != "" && given != "null" {
		since, terr := time.Parse(time.RFC3339, given)
		o.SinceTime, err = &metav1.Time{Time: since}, errors.Join(err, terr)
	}
	return o, err
}

// validLogOptions has the rules of the API's validation.
func validLogOptions(o *v1.PodLogOptions) bool {
	least := func(n *int64, least int64) bool { return n == nil || *n >= least }
	if !least(o.TailLines, 0) || !least(o.LimitBytes, 1) || !least(o.SinceSeconds, 1) {
		return false
	}
	if o.SinceSeconds != nil && o.SinceTime != nil && !o.SinceTime.IsZero() {
		return false
	}
	if o.Stream == nil || *o.Stream == v1.LogStreamAll {
		return true
	}
	return (*o.Stream == v1.LogStreamStdout || *o.Stream == v1.LogStreamStderr) && o.TailLines == nil
}

func compareLogQuery(t *testing.T, raw string, got logQuery, o *v1.PodLogOptions, now time.Time) {
	number := func(n *int64) int {
		if n == nil {
			return 0
		}
		return int(*n)
	}
	want := logQuery{opts: ContainerLogOpts{
		Tail: number(o.TailLines), LimitBytes: number(o.LimitBytes), SinceSeconds: int(min(int64(number(o.SinceSeconds)), maxSinceSeconds)),
		Timestamps: o.Timestamps, Follow: o.Follow, Previous: o.Previous,
	}}
	if o.SinceTime != nil && !o.SinceTime.IsZero() {
		want.opts.SinceTime = o.SinceTime.Time
	}
	if o.Stream != nil && *o.Stream != v1.LogStreamAll {
		want.stream = *o.Stream
	}
	if o.TailLines != nil && *o.TailLines == 0 {
		if o.Follow {
			want.opts.SinceSeconds, want.opts.SinceTime = 0, now
		} else {
			want.nothing = true
		}
	}
	if !got.opts.SinceTime.Equal(want.opts.SinceTime) {
		t.Fatalf("%q: since %s, want %s", raw, got.opts.SinceTime, want.opts.SinceTime)
	}
	got.opts.SinceTime = want.opts.SinceTime
	if got != want {
		t.Fatalf("%q: got %+v, want %+v", raw, got, want)
	}
}

// FuzzParseExecQuery compares with the library's parser, which looks at bodies
// too and takes malformed queries.
func FuzzParseExecQuery(f *testing.F) {
	for _, query := range []string{
		"", "command=a&command=b&output=1", "input=1&output=1&error=1&tty=1", "error=1&tty=1", "output=true", "output=0&output=1", "%zz", "output=1;input=1",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r := &http.Request{Method: "GET", URL: &url.URL{RawQuery: raw}, Header: http.Header{}}
		query, err := parseQuery(r)
		if err != nil {
			return
		}
		got, err := parseExecStreams(query)
		want, wantErr := remotecommand.NewOptions(r)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, and the library says %v", raw, err, wantErr)
		}
		if err == nil && got != (execStreams{want.Stdin, want.Stdout, want.Stderr, want.TTY}) {
			t.Fatalf("%q: %+v, and the library says %+v", raw, got, want)
		}
	})
}

// FuzzParsePorts compares with the library's parser, which has no limit.
func FuzzParsePorts(f *testing.F) {
	for _, query := range []string{"", "port=80", "port=80&port=81,82", "port=", "port=0", "port=65536", "port=+80", "port=80,", "port=0x50", "port=%38"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r := &http.Request{Method: "GET", URL: &url.URL{RawQuery: raw}, Header: http.Header{"Connection": {"upgrade"}, "Upgrade": {"websocket"}}}
		got, err := parsePorts(r)
		if _, malformed := url.ParseQuery(raw); malformed != nil {
			if err == nil {
				t.Fatalf("%q: %v", raw, got)
			}
			return
		}
		want, wantErr := portforward.NewV4Options(r)
		if wantErr == nil && len(want.Ports) > maxForwardPorts {
			wantErr = errors.New("too many")
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, and the library says %v", raw, err, wantErr)
		}
		if err == nil && !slices.Equal(got, want.Ports) {
			t.Fatalf("%q: %v, and the library says %v", raw, got, want.Ports)
		}
	})
}

type headerStream struct {
	httpstream.Stream
	header http.Header
	id     uint32
}

func (s headerStream) Headers() http.Header { return s.header }
func (s headerStream) Identifier() uint32   { return s.id }

// FuzzParseForwardHeader: what is accepted is a port, and a pair of streams has
// one request ID.
func FuzzParseForwardHeader(f *testing.F) {
	f.Add("80", "data", "1", uint32(3))
	f.Add("0", "error", "", uint32(1))
	f.Add("65535", "data", "", uint32(1))
	f.Add("-1", "odd", "\x00", uint32(0))
	f.Fuzz(func(t *testing.T, port, kind, id string, number uint32) {
		header := http.Header{"Port": {port}, "Streamtype": {kind}, "Requestid": {id}}
		got, err := parseForwardHeader(headerStream{header: header, id: number})
		if err != nil {
			return
		}
		if got.port < 1 || got.port > 65535 || kind != "data" && kind != "error" || got.data != (kind == "data") {
			t.Fatalf("%q, %q: %+v", port, kind, got)
		}
		header["Streamtype"] = []string{"error"}
		other := headerStream{header: header, id: number}
		if got.data {
			other.id -= 2 // the error stream before it
		}
		pair, err := parseForwardHeader(other)
		if err != nil || got.requestID == "" || pair.requestID != got.requestID || id != "" && got.requestID != id {
			t.Fatalf("%q, %d: %+v and %+v, %v", id, number, got, pair, err)
		}
	})
}

// FuzzPaths: for all that a client may ask for, providers get names.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"/containerLogs/ns/p/c", "/exec/ns/p/uid/c?command=x&output=1", "/attach/ns/../p/c", "/portForward/ns/%2e%2e", "/portForward/ns/p%00",
		"/containerLogs/ns/..%2f..%2fetc/c", "//containerLogs//ns/p/c", "/containerLogs/ns/p/c%ff", "/containerLogs/%6es/p/c", "*", "http://x/exec/ns/p/c",
	} {
		f.Add(path)
	}
	check := func(t *testing.T, namespace, pod, container string) {
		for _, problems := range [][]string{
			validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(pod), validation.IsDNS1123Label(container),
		} {
			if len(problems) > 0 {
				t.Errorf("asked for %q %q %q: %s", namespace, pod, container, problems)
			}
		}
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		PodHandler(PodHandlerConfig{
			GetContainerLogs: func(_ context.Context, namespace, pod, container string, _ ContainerLogOpts) (io.ReadCloser, error) {
				check(t, namespace, pod, container)
				return nil, nil
			},
			RunInContainer: func(context.Context, string, string, string, []string, AttachIO) error {
				t.Error("exec without a connection")
				return nil
			},
			AttachToContainer: func(context.Context, string, string, string, AttachIO) error {
				t.Error("attach without a connection")
				return nil
			},
			PortForward: func(context.Context, string, string, int32, io.ReadWriteCloser) error {
				t.Error("port-forward without a connection")
				return nil
			},
		}, true).ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented && w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "panicked") {
			t.Errorf("%q: %d %s", path, w.Code, w.Body)
		}
	})
}

// FuzzSizes: what comes on the stream for sizes is taken to its end.
func FuzzSizes(f *testing.F) {
	for _, text := range []string{`{"Width":80,"Height":24}` + "\n", `{"Width":70000}`, "}{", `{"Width":1}{"Height":2}garbage`, "null", `[]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rest := strings.NewReader(text)
		n := 0
		for range readSizes(t.Context(), rest) {
			n++
		}
		if n > len(text) {
			t.Errorf("%q: %d sizes", text, n)
		}
	})
}

// FuzzFrameConn: for any pieces, the frames come whole and in order.
func FuzzFrameConn(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x03abc\x00\x00\x00\x03\x01\x00\x00\x00"), uint8(4))
	f.Add([]byte("\x80\x03\x00\x01\x00\x00\x00\x01x"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var sent recorder
		conn := &frameConn{Conn: &sent}
		var frames [][]byte
		for rest := data; wholeFrame(rest); {
			length := spdyHeader + int(rest[5])<<16 + int(rest[6])<<8 + int(rest[7])
			frames = append(frames, rest[:length])
			for piece := range slices.Chunk(rest[:length], 1+int(size)) {
				if n, err := conn.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			rest = rest[length:]
		}
		if !reflect.DeepEqual(sent.writes, frames) {
			t.Errorf("got %q, want %q", sent.writes, frames)
		}
	})
}

type recorder struct {
	watchedConn
	writes [][]byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, slices.Clone(p))
	return len(p), nil
}
