package procfs

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

// A port is found with the process that listens there, and with no other.
func TestListeners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	found, err := Listeners(port, []Process{{PID: os.Getpid()}})
	if want := []netip.Addr{netip.MustParseAddr("127.0.0.1")}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err := Listeners(port, []Process{{PID: os.Getppid()}}); err != nil || len(found) > 0 {
		t.Errorf("found with another process %v, %v", found, err)
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F":                         "127.0.0.1",
		"00000000":                         "0.0.0.0",
		"00000000000000000000000001000000": "::1",
		"B80D01200000000067452301EFCDAB89": "2001:db8::123:4567:89ab:cdef",
		"0000000000000000FFFF00000100007F": "127.0.0.1",
	} {
		if got, err := parseAddress(text); err != nil || got != netip.MustParseAddr(want) {
			t.Errorf("%s is %v, %v, want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"x", "01", "010000"} {
		if addr, err := parseAddress(bad); err == nil {
			t.Errorf("%q is %v", bad, addr)
		}
	}
}
