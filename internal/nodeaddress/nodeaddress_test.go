package nodeaddress

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// unknown is a name that nobody has, without a question to any server: it is too long.
var unknown = strings.Repeat("a", 64) + ".invalid"

// Where the server's name cannot be resolved it is not known by which of its addresses
// this machine reaches it.
func TestTowardsWhatIsNotKnown(t *testing.T) {
	for _, server := range []string{"https://" + unknown + ":6443", "https://" + unknown, unknown + ":6443", unknown} {
		if ip, err := Towards(t.Context(), server, nil); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: got %v, %v, want an error of %v", server, ip, err, ErrUnreachable)
		}
	}
}

// A loopback address, by which this machine reaches itself, is of no use to the API server.
func TestTowardsThisMachine(t *testing.T) {
	want, err := Own()
	if err != nil || want.IsLoopback() {
		t.Fatalf("got %v, %v", want, err)
	}
	for _, server := range []string{"", "https://127.0.0.1:6443", "127.0.0.1:6443", "127.0.0.1", "localhost:8080", "http://[::1]"} {
		if ip, err := Towards(t.Context(), server, nil); err != nil || !ip.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", server, ip, err, want)
		}
	}
	if ip, err := Towards(t.Context(), "https://"+want.String(), nil); err != nil || !ip.Equal(want) {
		t.Errorf("%v: got %v, %v", want, ip, err)
	}
}

// The name of a server behind a proxy need not be one that this machine can resolve.
func TestTowardsAProxy(t *testing.T) {
	want, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	proxy := func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() != unknown {
			return nil, errors.New("asked about " + r.URL.String())
		}
		return url.Parse("http://127.0.0.1:3128")
	}
	if ip, err := Towards(t.Context(), "https://"+unknown, proxy); err != nil || !ip.Equal(want) {
		t.Errorf("got %v, %v, want %v", ip, err, want)
	}
}

// The address of a proxy on this machine does not tell by which of its addresses this
// machine is reached: the route to the server itself does.
func TestTowardsAServerBehindALocalProxy(t *testing.T) {
	want, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"http://127.0.0.1:3128", "socks5://localhost:1080", "http://[::1]"} {
		proxy := func(*http.Request) (*url.URL, error) { return url.Parse(at) }
		if ip, err := localTowards(t.Context(), "https://"+want.String()+":6443", proxy); err != nil || !ip.Equal(want) {
			t.Errorf("behind %s: got %v, %v, want %v", at, ip, err, want)
		}
	}
}
