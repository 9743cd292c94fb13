package nodeutil_test

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
)

// TestHeadersHaveALimit that long commands are far from.
func TestHeadersHaveALimit(t *testing.T) {
	address := serving(t, handledBy(answering("hello")))
	for size, want := range map[int]int{500 << 10: http.StatusOK, 1<<20 + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		status, _, err := get(t, "https://"+address+"/exec/ns/p/c?command="+strings.Repeat("x", size), insecure())
		if err != nil || status != want {
			t.Errorf("%d bytes: got %d, %v, want %d", size, status, err, want)
		}
	}
}

// TestHalfOpenConnectionsKeepNobodyOut: more connections than may wait, none of which
// says a word, and then one that does.
func TestHalfOpenConnectionsKeepNobodyOut(t *testing.T) {
	address := serving(t, handledBy(answering("hello")))
	var silent []net.Conn
	defer func() {
		for _, conn := range silent {
			conn.Close()
		}
	}()
	for range pendingconns.Max + 50 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	if status, body, err := get(t, "https://"+address+"/x", insecure()); err != nil || status != http.StatusOK {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	_ = silent[0].SetReadDeadline(time.Now().Add(deadline))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the oldest of them is still there: %v", err)
	}
}
