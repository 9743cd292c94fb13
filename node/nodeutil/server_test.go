package nodeutil_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestHeadersHaveALimit that long commands are far from.
func TestHeadersHaveALimit(t *testing.T) {
	address := serving(t, handledBy(saying("hello")))
	for size, want := range map[int]int{500 << 10: http.StatusOK, 1<<20 + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		status, _, err := get(t, "https://"+address+"/exec/ns/p/c?command="+strings.Repeat("x", size), insecure())
		if err != nil || status != want {
			t.Errorf("%d bytes: got %d, %v, want %d", size, status, err, want)
		}
	}
}
