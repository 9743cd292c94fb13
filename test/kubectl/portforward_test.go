//go:build integration

package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

const bigBody = 50 << 20

// webServer is what runs in the pod: it serves its name, a big body, and the
// checksum of what is posted.
type webServer struct {
	port string
	busy atomic.Int32 // requests that are being answered
}

func startWebServer(t *testing.T, name string, big []byte) *webServer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /name", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	mux.HandleFunc("GET /big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) })
	mux.HandleFunc("POST /sum", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, sha256Of(data))
	})
	w := &webServer{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.busy.Add(1)
		defer w.busy.Add(-1)
		mux.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.port = portOf(t, server.Listener)
	return w
}

func portOf(t *testing.T, listener net.Listener) string {
	t.Helper()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// refusingPort is a port on which nobody listens: it is bound until the end of the
// test, so that nobody else gets it.
func refusingPort(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(name.(*unix.SockaddrInet4).Port)
}

func testPortForward(t *testing.T, u user, transport transport) {
	big := randomBytes(bigBody)
	first, second, refused := startWebServer(t, "first", nil), startWebServer(t, "second", big), refusingPort(t)
	forward := u.start(t, "port-forward", "pod/pod", "--address=127.0.0.1", ":"+first.port, ":"+second.port)
	locals := forward.forwarded(t, first.port, second.port)

	t.Run("many at once", func(t *testing.T) {
		var group errgroup.Group
		group.SetLimit(20)
		for i := range 100 {
			base, want := locals[i%2], []string{"first", "second"}[i%2]
			group.Go(func() error {
				body, err := fetch(t.Context(), base+"/name", nil)
				if err == nil && string(body) != want {
					err = fmt.Errorf("the answer is %q, want %q", body, want)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Errorf("%v\n%s", err, forward.out)
		}
	})
	t.Run("download", func(t *testing.T) {
		body, err := fetch(t.Context(), locals[1]+"/big", nil)
		if err != nil || sha256Of(body) != sha256Of(big) {
			t.Errorf("%d of %d bytes came, %v\n%s", len(body), len(big), err, forward.out)
		}
	})
	t.Run("upload", func(t *testing.T) {
		sum, err := fetch(t.Context(), locals[0]+"/sum", big[:10<<20])
		if err != nil || string(sum) != sha256Of(big[:10<<20]) {
			t.Errorf("the sum there is %q, %v\n%s", sum, err, forward.out)
		}
	})
	t.Run("client hangs up", func(t *testing.T) { // in the middle of an answer
		for range 3 {
			hangUp(t, locals[1]+"/big")
		}
		eventually(t, "the server has noticed", func() (bool, string) {
			busy := second.busy.Load()
			return busy == 0, fmt.Sprintf("%d requests are being answered", busy)
		})
		time.Sleep(time.Second) // in which kubectl would give up, if it got an error
		if body, err := fetch(t.Context(), locals[0]+"/name", nil); err != nil || string(body) != "first" {
			t.Errorf("afterwards: %q, %v\n%s", body, err, forward.out)
		}
	})
	t.Run("killed client", func(t *testing.T) {
		other := u.start(t, "port-forward", "pod/pod", "--address=127.0.0.1", ":"+second.port)
		response := request(t, other.forwarded(t, second.port)[0]+"/big")
		defer response.Body.Close()
		other.kill()
		eventually(t, "the server has noticed", func() (bool, string) {
			busy := second.busy.Load()
			return busy == 0, fmt.Sprintf("%d requests are being answered", busy)
		})
	})
	t.Run("refused", func(t *testing.T) { testRefusedPort(t, u, refused) })
	t.Run("beside a refused one", func(t *testing.T) { testOthersGoOn(t, u, transport, first.port, refused) })
}

// hangUp begins to read an answer, and no more.
func hangUp(t *testing.T, url string) {
	t.Helper()
	request(t, url).Body.Close()
}

// request sends a request on a connection of its own, which ends with the body.
func request(t *testing.T, url string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// testRefusedPort: kubectl says why, and ends; that is its way.
func testRefusedPort(t *testing.T, u user, refused string) {
	forward := u.start(t, "port-forward", "pod/pod", "--address=127.0.0.1", ":"+refused)
	if body, err := fetch(t.Context(), forward.forwarded(t, refused)[0], nil); err == nil {
		t.Errorf("through a port on which nobody listens came %q", body)
	}
	if code := forward.wait(t); code == 0 || !strings.Contains(forward.out.String(), "connection refused") {
		t.Errorf("kubectl ended with %d and %q", code, forward.out)
	}
}

// testOthersGoOn is a client that, unlike kubectl, bears a refused port.
func testOthersGoOn(t *testing.T, u user, transport transport, open, refused string) {
	conn := dialPortForward(t, u.namespace, transport)
	defer conn.Close()
	data, _ := openPort(t, conn, open, "1")
	_, failure := openPort(t, conn, refused, "2")
	if message, err := io.ReadAll(failure); err != nil || !strings.Contains(string(message), "connection refused") {
		t.Errorf("the error of the refused port is %q, %v", message, err)
	}
	if _, err := io.WriteString(data, "GET /name HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(data); err != nil || !strings.HasSuffix(string(answer), "first") {
		t.Errorf("the other port answers %q, %v", answer, err)
	}
}

func dialPortForward(t *testing.T, namespace string, transport transport) httpstream.Connection {
	t.Helper()
	config := cluster.Config()
	address, err := url.Parse(config.Host + "/api/v1/namespaces/" + namespace + "/pods/pod/portforward")
	if err != nil {
		t.Fatal(err)
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, address)
	if transport.webSocket {
		if dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(address, config); err != nil {
			t.Fatal(err)
		}
	}
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// openPort makes the two streams of a connection to a port of the pod.
func openPort(t *testing.T, conn httpstream.Connection, port, id string) (data, failure httpstream.Stream) {
	t.Helper()
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, id)
	var streams []httpstream.Stream
	for _, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeData} {
		headers.Set(corev1.StreamType, kind)
		stream, err := conn.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	_ = streams[0].Close() // we have nothing to say on it
	return streams[1], streams[0]
}

// forwarded waits until kubectl says on which local addresses it listens for
// the given ports of the pod.
func (b *background) forwarded(t *testing.T, ports ...string) (urls []string) {
	t.Helper()
	for _, port := range ports {
		pattern := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> ` + port + `\n`)
		eventually(t, "kubectl forwards "+port, func() (bool, string) {
			found := pattern.FindStringSubmatch(b.out.String())
			if found == nil {
				return false, b.out.String()
			}
			urls = append(urls, "http://"+found[1])
			return true, ""
		})
	}
	return urls
}

// fetch gets a URL, or posts to it, on a connection of its own.
func fetch(ctx context.Context, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return answer, err
}
