package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

func TestStopSignal(t *testing.T) {
	for s, want := range map[runtimeapi.Signal]unix.Signal{
		runtimeapi.Signal_RUNTIME_DEFAULT: unix.SIGTERM, runtimeapi.Signal_SIGKILL: unix.SIGKILL,
		runtimeapi.Signal_SIGUSR2: unix.SIGUSR2, runtimeapi.Signal_SIGCLD: unix.SIGCHLD, runtimeapi.Signal_SIGPOLL: unix.SIGIO,
		runtimeapi.Signal_SIGIOT: unix.SIGABRT, runtimeapi.Signal_SIGRTMIN: 34, runtimeapi.Signal_SIGRTMINPLUS3: 37,
		runtimeapi.Signal_SIGRTMAXMINUS14: 50, runtimeapi.Signal_SIGRTMAX: 64,
	} {
		if got := stopSignal(s); got != want {
			t.Errorf("%v: %d, want %d", s, got, want)
		}
	}
}

// A shim that is gone may have left its number to somebody else.
func TestKillShim(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	p, err := procfs.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	(&container{started: &shim.Started{ShimPID: p.PID, ShimStart: p.Start - 1}}).killShim()
	(&container{}).killShim()
	if !procfs.Alive(p.PID, p.Start) {
		t.Fatal("somebody else was killed")
	}
	(&container{started: &shim.Started{ShimPID: p.PID, ShimStart: p.Start}}).killShim()
	if err := cmd.Wait(); err == nil {
		t.Error("the shim ended by itself")
	}
}

// A shim that has not recorded yet when it was started is killed by its number, which
// is its own as long as nobody has waited for it.
func TestKillShimOfOurs(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	(&container{shimPID: cmd.Process.Pid}).killShim()
	if err := cmd.Wait(); err == nil {
		t.Error("the shim ended by itself")
	}
}

func TestRate(t *testing.T) {
	begin := time.Unix(1000, 0)
	var s sample
	for _, test := range []struct {
		after time.Duration
		cpu   uint64
		want  uint64
	}{
		{2 * time.Second, 1e9, 5e8},         // the mean since the start
		{2500 * time.Millisecond, 2e9, 5e8}, // too soon
		{4 * time.Second, 5e9, 2e9},
		{6 * time.Second, 5e9, 0},
		{8 * time.Second, 1e9, 0}, // a counter does not go back
	} {
		if got := s.next(begin.Add(test.after), test.cpu, begin); got != test.want {
			t.Errorf("after %s: %d, want %d", test.after, got, test.want)
		}
	}
}

// A client that does not receive events gets an error that some were lost.
func TestSlowSubscriber(t *testing.T) {
	r := &Runtime{events: newHub()}
	ready, done := make(chan struct{}), make(chan error)
	go func() {
		done <- r.GetContainerEvents(context.Background(), make(chan *runtimeapi.ContainerEventResponse),
			func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	}()
	<-ready
	for range maxEvents + 2 {
		r.events.publish(&runtimeapi.ContainerEventResponse{})
	}
	if r.events.wanted() {
		t.Error("it is still subscribed")
	}
	r.events.close()
	if err := <-done; status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// A listener at [::] of a machine without an IPv6 loopback address is reached by IPv4, if no
// other listens there.
func TestPortForwardWithoutIPv6(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	taken := other.Addr().(*net.TCPAddr).AddrPort().Port()
	const free = 1
	for name, test := range map[string]struct {
		listens string
		port    uint16
		want    []string
	}{
		"all addresses":               {"::", free, []string{"[::1]:1", "127.0.0.1:1"}},
		"IPv4 is another's":           {"::", taken, []string{fmt.Sprintf("[::1]:%d", taken)}},
		"only the loopback address":   {"::1", free, []string{"[::1]:1"}},
		"another address of its own":  {"2001:db8::1", free, []string{"[2001:db8::1]:1"}},
		"all of IPv4, which is ended": {"0.0.0.0", free, []string{"127.0.0.1:1"}},
	} {
		var got []string
		_, err := connect([]netip.Addr{netip.MustParseAddr(test.listens)}, test.port, func(address string) (net.Conn, error) {
			got = append(got, address)
			return nil, unix.EADDRNOTAVAIL
		})
		if !errors.Is(err, unix.EADDRNOTAVAIL) || !slices.Equal(got, test.want) {
			t.Errorf("%s: dials %q, want %q (%v)", name, got, test.want, err)
		}
	}
}

func TestResolvConf(t *testing.T) {
	got := resolvConf(&runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5"}})
	if got != "nameserver 10.0.0.10\nsearch a b\noptions ndots:5\n" {
		t.Errorf("%q", got)
	}
}
