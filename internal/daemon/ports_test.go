package daemon_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// No two daemons of a test get the same port, and no connection takes it before they listen.
func TestFreePorts(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 100 {
		ports, err := daemon.FreePorts(3)
		if err != nil || len(ports) != 3 {
			t.Fatalf("got %v, %v", ports, err)
		}
		for _, port := range ports {
			if seen[port] || port >= 32768 {
				t.Errorf("port %d was given before, or is one of outgoing connections", port)
			}
			seen[port] = true
		}
	}
}
