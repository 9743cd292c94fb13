package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilexec "k8s.io/utils/exec"
	"k8s.io/utils/ptr"
)

// targetOf is a pod at the address of a server, with a port named "web" there.
func targetOf(address string) (Target, int32) {
	host, portText, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(portText)
	container := &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}}
	return Target{Pod: pod, Container: container, ContainerID: "id", IP: host}, int32(port)
}

// closedPort is an address at which nothing listens, nor will before the test's
// end: a connection to elsewhere has its port.
func closedPort(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", silent(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// silent is an address that accepts connections and never answers.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// patience is the timeout of probes that get an answer, however slow the machine
// is, in seconds.
const patience = 60

func probeHTTP(t *testing.T, target Target, action *corev1.HTTPGetAction) (Outcome, string, error) {
	t.Helper()
	probe := &corev1.Probe{TimeoutSeconds: patience, ProbeHandler: corev1.ProbeHandler{HTTPGet: action}}
	return NewProber(Options{}).Probe(t.Context(), target, probe)
}

func TestHTTPStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code"))
		w.WriteHeader(code)
		fmt.Fprint(w, "body")
	}))
	defer server.Close()
	target, _ := targetOf(server.Listener.Addr().String())
	for code, want := range map[int]struct {
		outcome Outcome
		output  string
	}{
		200: {Success, "body"},
		299: {Success, "body"},
		302: {Warning, "Probe terminated redirects, Response body: body"},
		400: {Failure, "HTTP probe failed with statuscode: 400"},
		500: {Failure, "HTTP probe failed with statuscode: 500"},
	} {
		path := fmt.Sprintf("/?code=%d", code)
		outcome, output, err := probeHTTP(t, target, &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web")})
		if outcome != want.outcome || output != want.output || err != nil {
			t.Errorf("%d: %s %q %v", code, outcome, output, err)
		}
	}
}

func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r }))
	defer server.Close()
	target, port := targetOf(server.Listener.Addr().String())
	header := func(name, value string) corev1.HTTPHeader { return corev1.HTTPHeader{Name: name, Value: value} }
	for name, test := range map[string]struct {
		headers []corev1.HTTPHeader
		want    http.Header
		host    string
	}{
		"defaults": {nil, http.Header{"User-Agent": {"kube-probe/1.36"}, "Accept": {"*/*"}}, server.Listener.Addr().String()},
		"own": {
			[]corev1.HTTPHeader{header("user-agent", "me"), header("accept", "text/plain"), header("X", "1"), header("x", "2"), header("host", "example.com")},
			http.Header{"User-Agent": {"me"}, "Accept": {"text/plain"}, "X": {"1", "2"}}, "example.com",
		},
		"none": {[]corev1.HTTPHeader{header("User-Agent", ""), header("Accept", "")}, http.Header{}, server.Listener.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, output, err := probeHTTP(t, target, &corev1.HTTPGetAction{Path: "/a%20b?q=1", Port: intstr.FromInt32(port), HTTPHeaders: test.headers})
			if outcome != Success || err != nil {
				t.Fatal(outcome, output, err)
			}
			got.Header.Del("Connection") // close
			if fmt.Sprint(got.Header) != fmt.Sprint(test.want) || got.Host != test.host || got.RequestURI != "/a%20b?q=1" {
				t.Errorf("got %v, host %s, %s", got.Header, got.Host, got.RequestURI)
			}
		})
	}
}

func TestHTTPSWithoutVerification(t *testing.T) {
	for version, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		server.EnableHTTP2 = version
		server.StartTLS()
		defer server.Close()
		target, port := targetOf(server.Listener.Addr().String())
		outcome, output, err := probeHTTP(t, target, &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Port: intstr.FromInt32(port)})
		if outcome != Success || output != want || err != nil {
			t.Error(outcome, output, err)
		}
	}
}

func TestHTTPRedirects(t *testing.T) {
	var served int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			fmt.Fprint(w, "end")
		}
	}))
	defer server.Close()
	target, port := targetOf(server.Listener.Addr().String())
	for path, want := range map[string]struct {
		outcome Outcome
		output  string
		served  int
	}{
		"/here":  {Success, "end", 2},
		"/away":  {Warning, "Probe terminated redirects, Response body: <a href=\"http://example.invalid/\">Found</a>.\n\n", 1},
		"/round": {Failure, `Get "/round": stopped after 10 redirects`, 10},
	} {
		outcome, output, err := probeHTTP(t, target, &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)})
		if outcome != want.outcome || output != want.output || err != nil {
			t.Errorf("%s: %s %q %v", path, outcome, output, err)
		}
		served = 0
		hook := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}
		if err := NewProber(Options{}).Hook(t.Context(), target, hook); (err == nil) != (want.outcome != Failure) || served != want.served {
			t.Errorf("the hook %s, of %d requests: %v", path, served, err)
		}
	}
}

func TestHTTPBodyIsLimited(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 3*maxOutput))
	}))
	defer server.Close()
	target, port := targetOf(server.Listener.Addr().String())
	outcome, output, _ := probeHTTP(t, target, &corev1.HTTPGetAction{Port: intstr.FromInt32(port)})
	if outcome != Success || len(output) != maxOutput {
		t.Error(outcome, len(output))
	}
}

func TestHTTPWithoutAnswer(t *testing.T) {
	closed := closedPort(t)
	target, port := targetOf(closed)
	outcome, output, err := probeHTTP(t, target, &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt32(port)})
	want := fmt.Sprintf("Get \"http://%s/x\": dial tcp %[1]s: connect: connection refused", closed)
	if outcome != Failure || output != want || err != nil {
		t.Errorf("%s %q %v", outcome, output, err)
	}
	mute := silent(t)
	target, port = targetOf(mute)
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt32(port)}}}
	outcome, output, err = NewProber(Options{}).Probe(t.Context(), target, probe)
	want = fmt.Sprintf("Get \"http://%s/x\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)", mute)
	if outcome != Failure || output != want || err != nil {
		t.Errorf("%s %q %v", outcome, output, err)
	}
}

func TestHTTPIgnoresTheProxyOfTheEnvironment(t *testing.T) {
	transport, ok := NewProber(Options{}).http.(*http.Transport)
	if !ok || transport.Proxy != nil {
		t.Error("probes go through a proxy")
	}
}

func TestCannotProbe(t *testing.T) {
	target, _ := targetOf("127.0.0.1:80")
	nowhere := target
	nowhere.IP = ""
	get := func(port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}
	}
	for name, test := range map[string]struct {
		target  Target
		handler corev1.ProbeHandler
		want    string
	}{
		"port name": {target, get(intstr.FromString("nope")), `container "c" has no port named "nope": name one of its ports, or give a number`},
		"port":      {target, get(intstr.FromInt32(70000)), "invalid port number: 70000: it has to be one of 1 to 65535"},
		"no IP":     {nowhere, get(intstr.FromInt32(80)), "the pod has no IP address yet"},
		"tcp":       {nowhere, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}, "the pod has no IP address yet"},
		"grpc":      {nowhere, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}, "the pod has no IP address yet"},
		"nothing":   {target, corev1.ProbeHandler{}, "the probe names no action: give it exec, httpGet, tcpSocket or grpc"},
		"no exec":   {target, corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"a"}}}, `cannot run ["a"]: this node runs no commands in containers`},
	} {
		outcome, output, err := NewProber(Options{}).Probe(t.Context(), test.target, &corev1.Probe{ProbeHandler: test.handler})
		if outcome != Unknown || output != "" || err == nil || err.Error() != test.want {
			t.Errorf("%s: %s %q %v", name, outcome, output, err)
		}
	}
}

func TestTCP(t *testing.T) {
	prober := NewProber(Options{})
	probe := func(address string) (Outcome, string, error) {
		target, port := targetOf(address)
		tcp := &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}
		return prober.Probe(t.Context(), target, &corev1.Probe{TimeoutSeconds: patience, ProbeHandler: corev1.ProbeHandler{TCPSocket: tcp}})
	}
	if outcome, output, err := probe(silent(t)); outcome != Success || output != "" || err != nil {
		t.Errorf("%s %q %v", outcome, output, err)
	}
	closed := closedPort(t)
	if outcome, output, err := probe(closed); outcome != Failure || output != "dial tcp "+closed+": connect: connection refused" || err != nil {
		t.Errorf("%s %q %v", outcome, output, err)
	}
}

func TestGRPC(t *testing.T) {
	var agent []string
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		agent = md.Get("user-agent")
		return handler(ctx, req)
	}))
	checks := health.NewServer()
	checks.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(server, checks)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Stop()
	bare := grpc.NewServer()
	bareListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go bare.Serve(bareListener)
	defer bare.Stop()

	closed := closedPort(t)
	for name, test := range map[string]struct {
		address string
		service *string
		outcome Outcome
		output  string
	}{
		"healthy":    {l.Addr().String(), nil, Success, "service healthy"},
		"sick":       {l.Addr().String(), ptr.To("sick"), Failure, `service unhealthy (responded with "NOT_SERVING")`},
		"unknown":    {l.Addr().String(), ptr.To("x"), Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		"no health":  {bareListener.Addr().String(), nil, Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		"no server":  {closed, nil, Failure, fmt.Sprintf("error: failed to connect service at %q: dial tcp %s: connect: connection refused", closed, closed)},
		"silent":     {silent(t), nil, Failure, "timeout: health rpc did not complete within 1s"},
		"empty name": {l.Addr().String(), ptr.To(""), Success, "service healthy"},
	} {
		target, port := targetOf(test.address)
		probe := &corev1.Probe{TimeoutSeconds: patience, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: test.service}}}
		if name == "silent" {
			probe.TimeoutSeconds = 0 // the default, 1 second
		}
		outcome, output, err := NewProber(Options{Version: "1.99"}).Probe(t.Context(), target, probe)
		if outcome != test.outcome || output != test.output || err != nil {
			t.Errorf("%s: %s %q %v", name, outcome, output, err)
		}
	}
	if len(agent) != 1 || !strings.HasPrefix(agent[0], "kube-probe/1.99") {
		t.Errorf("user agent %q", agent)
	}
}

// scripted is a CRI runtime that answers ExecSync with its function.
type scripted func(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)

func (f scripted) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
	return f(ctx, id, cmd, timeout)
}

func TestExec(t *testing.T) {
	long := strings.Repeat("x", maxOutput+1)
	for name, test := range map[string]struct {
		stdout, stderr string
		err            error
		outcome        Outcome
		output         string
		tries          int
	}{
		"success": {"out", "err", nil, Success, "outerr", 1},
		"long":    {long, "", nil, Success, long[1:], 1},
		"exit 1":  {"out", "err", utilexec.CodeExitError{Err: errors.New("exit"), Code: 1}, Failure, "outerr", 1},
		"exit 0":  {"out", "", utilexec.CodeExitError{Err: errors.New("exit"), Code: 0}, Success, "out", 1},
		"timeout": {"out", "", fmt.Errorf("slow: %w", context.DeadlineExceeded), Failure, "slow: context deadline exceeded", 1},
		"broken":  {"out", "", errors.New("no runtime"), Unknown, "", 3},
	} {
		tries := 0
		runtime := scripted(func(_ context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
			tries++
			if id != "id" || fmt.Sprint(cmd) != "[cat a $(B) $(C) $(A) $x]" || timeout != 2*time.Second {
				t.Errorf("%s %q %v", id, cmd, timeout)
			}
			return []byte(test.stdout), []byte(test.stderr), test.err
		})
		target, _ := targetOf("127.0.0.1:80")
		target.Container.Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{}}}
		probe := &corev1.Probe{TimeoutSeconds: 2, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "$(A)", "$(B)", "$(C)", "$$(A)", "$x"}}}}
		outcome, output, err := NewProber(Options{Exec: ExecSync(runtime)}).Probe(t.Context(), target, probe)
		if outcome != test.outcome || output != test.output || (err != nil) != (outcome == Unknown) || tries != test.tries {
			t.Errorf("%s: %s %q %v after %d", name, outcome, output, err, tries)
		}
	}
}

func TestProbeGivenUp(t *testing.T) {
	target, port := targetOf(silent(t))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	probe := &corev1.Probe{TimeoutSeconds: 60, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(port)}}}
	outcome, _, err := NewProber(Options{}).Probe(ctx, target, probe)
	if outcome != Unknown || !errors.Is(err, context.Canceled) {
		t.Error(outcome, err)
	}
}

func TestURL(t *testing.T) {
	target := Target{Container: &corev1.Container{}, IP: "fd00::1"}
	for _, test := range []struct {
		action corev1.HTTPGetAction
		want   string
	}{
		{corev1.HTTPGetAction{Path: "/"}, "http://[fd00::1]:80/"},
		{corev1.HTTPGetAction{Path: "x?y=z"}, "http://[fd00::1]:80/x?y=z"},
		{corev1.HTTPGetAction{Path: "//other/x"}, "http://[fd00::1]:80/x"},
		{corev1.HTTPGetAction{Path: "http://other/x"}, "http://[fd00::1]:80/x"},
		{corev1.HTTPGetAction{Path: "%zz"}, "http://[fd00::1]:80/%25zz"},
		{corev1.HTTPGetAction{Host: "h", Scheme: "HTTPS"}, "https://h:80"},
	} {
		test.action.Port = intstr.FromString("80")
		request, err := newRequest(t.Context(), target, &test.action, "")
		if err != nil || request.URL.String() != test.want {
			t.Errorf("%v: %v %v", test.action, request, err)
		}
		if _, err := url.Parse(test.want); err != nil {
			t.Error(err)
		}
	}
}
