package relay

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) {
	MaybeRelay()
	if dir := os.Getenv("TEST_RELAY_DIR"); dir != "" {
		fmt.Fprintln(os.Stderr, call(context.Background(), dir, "unix://"+os.Getenv("TEST_RELAY_RUNTIME")))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// call starts a container through a relay.
func call(ctx context.Context, dir, endpoint string) error {
	r, err := Start(ctx, dir, endpoint)
	if err != nil {
		return err
	}
	defer r.Close()
	conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	if os.Getenv("TEST_RELAY_LARGE") != "" {
		_, err = runtimeapi.NewRuntimeServiceClient(conn).ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{})
		return err
	}
	_, err = runtimeapi.NewRuntimeServiceClient(conn).StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: strings.Repeat("x", 100_000)})
	return err
}

// slowRuntime starts containers when a test lets it.
type slowRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	asked, go_ chan struct{}
	result     chan error
}

func (s *slowRuntime) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	s.asked <- struct{}{}
	select {
	case <-s.go_:
	case <-ctx.Done():
	}
	s.result <- ctx.Err()
	return &runtimeapi.StartContainerResponse{}, ctx.Err()
}

// ContainerStatus gives an answer that is larger than what a caller is ready for
// before it has read of it.
func (s *slowRuntime) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.asked <- struct{}{}
	<-s.go_
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"a": strings.Repeat("a", 1<<20)}}, nil
}

// startRuntime serves a runtime, and counts its connections.
func startRuntime(t *testing.T) (*slowRuntime, string) {
	t.Helper()
	s := &slowRuntime{asked: make(chan struct{}), go_: make(chan struct{}), result: make(chan error, 1)}
	path := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return s, path
}

func TestCallsAreRelayed(t *testing.T) {
	s, path := startRuntime(t)
	result := make(chan error)
	go func() { result <- call(t.Context(), t.TempDir(), "unix://"+path) }()
	<-s.asked
	s.go_ <- struct{}{}
	if err := <-result; err != nil {
		t.Error(err)
	}
	waitForNoRelay(t, path)
}

// The caller is killed: the call goes on to its end, and then the relay ends.
func TestAKilledCallersCallGoesOn(t *testing.T) {
	s, path := startRuntime(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "TEST_RELAY_DIR="+t.TempDir(), "TEST_RELAY_RUNTIME="+path)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.asked
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	select {
	case err := <-s.result:
		t.Fatalf("the call was given up: %v", err)
	case s.go_ <- struct{}{}:
	}
	if err := <-s.result; err != nil {
		t.Errorf("the call was given up: %v", err)
	}
	waitForNoRelay(t, path)
}

// The end of an answer that nobody reads is waited for, however long it is.
func TestALongAnswerForAKilledCaller(t *testing.T) {
	s, path := startRuntime(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "TEST_RELAY_DIR="+t.TempDir(), "TEST_RELAY_RUNTIME="+path, "TEST_RELAY_LARGE=1")
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.asked
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	s.go_ <- struct{}{}
	waitForNoRelay(t, path)
}

// A caller that gives up a call does so to the runtime as well.
func TestCallsAreGivenUp(t *testing.T) {
	s, path := startRuntime(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- call(ctx, t.TempDir(), "unix://"+path) }()
	<-s.asked
	cancel()
	if err := <-s.result; err == nil {
		t.Error("the runtime got no error")
	}
	if err := <-result; err == nil {
		t.Error("the caller got no error")
	}
	waitForNoRelay(t, path)
}

func TestAKilledRelayIsStartedAgain(t *testing.T) {
	s, path := startRuntime(t)
	dir := t.TempDir()
	r, err := Start(t.Context(), dir, "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	for range 2 {
		result := make(chan error)
		go func() {
			_, err := client.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{}, grpc.WaitForReady(true))
			result <- err
		}()
		<-s.asked
		for _, pid := range relays(t, path) {
			process, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			_ = process.Kill()
		}
		if err := <-result; err == nil {
			t.Error("a call through a relay that was killed had an answer")
		}
		<-s.result
	}
}

func TestStartRefuses(t *testing.T) {
	for endpoint, dir := range map[string]string{"tcp://127.0.0.1:1": t.TempDir(), "unix:///x": filepath.Join(t.TempDir(), strings.Repeat("x", 100))} {
		if r, err := Start(t.Context(), dir, endpoint); err == nil {
			_ = r.Close()
			t.Errorf("there is a relay for %s in %s", endpoint, dir)
		}
	}
}

// relays are the processes of relays to a runtime.
func relays(t *testing.T, runtime string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		content, _ := os.ReadFile(path) // the process may have ended
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && string(content) == argument+"\x00"+runtime+"\x00" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func waitForNoRelay(t *testing.T, runtime string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(relays(t, runtime)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the relay goes on though no call does")
		}
	}
}
