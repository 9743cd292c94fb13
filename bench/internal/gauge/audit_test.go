package gauge

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const record = `{"stage":"ResponseComplete","verb":"list","requestURI":"/api/v1/pods","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"patch","requestURI":"/","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z","objectRef":{"resource":"pods","subresource":"status"}}
{"stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?sendInitialEvents=true","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"watch","requestURI":"/api/v1/pods?sendInitialEvents=true","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"create","requestURI":"/","userAgent":"bench","requestReceivedTimestamp":"2026-01-01T00:00:04.000000Z","objectRef":{"resource":"pods"}}
{"stage":"ResponseComplete","verb":"update","requestURI":"/","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z","objectRef":{"resource":"leases"}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/version?x","userAgent":"agent/1","requestReceivedTimestamp":"2026-01-01T00:00:03.500000Z"}
{"stage":"Resp`

func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	first, rest, _ := strings.Cut(record, "\n")
	if err := os.WriteFile(path, []byte(first+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	audit := Audit{Path: path, Ours: "bench"}
	mark, err := audit.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(first+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	got, last, err := audit.Since(mark, "leases")
	if err != nil {
		t.Fatal(err)
	}
	want := Requests{{"PATCH", "pods/status"}: 1, {WatchList, "pods"}: 1, {"PUT", "leases"}: 1, {"GET", "/version"}: 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := time.Date(2026, 1, 1, 0, 0, 3, 5e8, time.UTC); !last.Equal(want) {
		t.Errorf("the last is of %v, want %v", last, want)
	}
}
