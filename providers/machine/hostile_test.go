package machine

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

// caller asks for a certificate with a key of its own.
type caller struct {
	bootstrap agent.Bootstrap
	key       *ecdsa.PrivateKey
}

func newCaller(t *testing.T, m *labMachine) caller {
	t.Helper()
	bootstrap, err := agent.ParseBootstrap([]byte(m.userData))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return caller{bootstrap, key}
}

func (c caller) ask(t *testing.T, body []byte) (status int, answer agent.CertificateAnswer) {
	t.Helper()
	if body == nil {
		// Names that it asks for do not count.
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{agent.NodeName}}, c.key)
		if err != nil {
			t.Fatal(err)
		}
		if body, err = json.Marshal(agent.CertificateRequest{Machine: c.bootstrap.Machine, Token: c.bootstrap.Token, CSR: csr}); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.bootstrap.CA))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: agent.NodeName}}}
	response, err := client.Post(c.bootstrap.URL+agent.CertificatePath, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&answer) // errors are texts
	return response.StatusCode, answer
}

// begun is a world with a machine that has been made, and whose agent does not run.
func begun(t *testing.T) (*world, *labMachine) {
	t.Helper()
	w := newWorld(t)
	w.lab.silent = true
	w.start()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	provider, pod := w.provider, w.pod("a")
	go func() {
		defer close(ended)
		_ = provider.CreatePod(ctx, pod) // which waits for the agent
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	w.eventually("a machine is made", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		for _, m := range w.backend.members {
			if m.made {
				return nil
			}
		}
		return errors.New("there is none")
	})
	return w, w.only()
}

// A token is good for the first key that comes with it, and for no other, also when the node has
// begun again.
func TestTokenIsGoodForOneKey(t *testing.T) {
	w, m := begun(t)
	first, second := newCaller(t, m), newCaller(t, m)
	wrong := newCaller(t, m)
	wrong.bootstrap.Token = "guessed"
	if status, _ := wrong.ask(t, nil); status != http.StatusForbidden {
		t.Errorf("a wrong token is answered with %d", status)
	}
	other := newCaller(t, m)
	other.bootstrap.Machine = "default-other-1"
	if status, _ := other.ask(t, nil); status != http.StatusServiceUnavailable {
		t.Errorf("another machine's name is answered with %d", status)
	}
	for _, nonsense := range []string{"", "{", `{"machine":"` + m.Name + `","csr":"bm9uc2Vuc2U="}`, strings.Repeat("x", 1<<20)} {
		if status, _ := first.ask(t, []byte(nonsense)); status != http.StatusBadRequest {
			t.Errorf("nonsense of %d bytes is answered with %d", len(nonsense), status)
		}
	}
	for range 2 { // an answer may have been lost
		if status, answer := first.ask(t, nil); status != http.StatusOK || answer.Certificate == "" {
			t.Fatalf("the first key is answered with %d", status)
		}
	}
	if status, _ := second.ask(t, nil); status != http.StatusForbidden {
		t.Errorf("a second key is answered with %d", status)
	}
	w.stop()
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _ := second.ask(t, nil); status != http.StatusForbidden {
		t.Errorf("a second key is answered with %d after a restart", status)
	}
	if status, _ := first.ask(t, nil); status != http.StatusOK {
		t.Errorf("the first key is answered with %d after a restart", status)
	}
	entries, err := os.ReadDir(w.cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range append(entries, mustReadDir(t, filepath.Join(w.cfg.StateDir, "machines"))...) {
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 && !info.IsDir() {
			t.Errorf("others may read %s: %v", entry.Name(), err)
		}
	}
}

func mustReadDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil || bytes.Contains(text, []byte("token\"")) {
			t.Errorf("%s: %v", entry.Name(), err)
		}
	}
	return entries
}

// The token is in no tag, and in none of the driver's arguments.
func TestTokenIsInNoTag(t *testing.T) {
	_, m := begun(t)
	token := newCaller(t, m).bootstrap.Token
	for key, value := range m.Tags {
		if strings.Contains(value, token) {
			t.Errorf("tag %s has the token", key)
		}
	}
}

// With the certificate of a machine one is neither the node nor another machine.
func TestCertificateOfAMachineIsForNothingElse(t *testing.T) {
	_, m := begun(t)
	c := newCaller(t, m)
	status, answer := c.ask(t, nil)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	block, _ := pem.Decode([]byte(answer.Certificate))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.bootstrap.CA))
	verify := func(name string, usage x509.ExtKeyUsage, at time.Time) error {
		_, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: at})
		return err
	}
	now := time.Now()
	if err := verify(agent.ServerName(m.Name), x509.ExtKeyUsageServerAuth, now); err != nil {
		t.Error(err)
	}
	if err := verify(agent.ServerName(m.Name), x509.ExtKeyUsageServerAuth, now.Add(-30*time.Minute)); err != nil {
		t.Errorf("a clock that is half an hour behind: %v", err)
	}
	if verify(agent.NodeName, x509.ExtKeyUsageServerAuth, now) == nil || verify("", x509.ExtKeyUsageClientAuth, now) == nil ||
		verify(agent.ServerName("default-b-1"), x509.ExtKeyUsageServerAuth, now) == nil || cert.IsCA {
		t.Error("it is for something else, too")
	}
	if verify(agent.ServerName(m.Name), x509.ExtKeyUsageServerAuth, now.Add(48*time.Hour)) == nil {
		t.Error("it does not expire")
	}
}

// An agent serves its node alone: a client without a certificate, or with that of another
// machine, gets no answer.
func TestAgentServesItsNodeAlone(t *testing.T) {
	w := newWorld(t).start()
	w.run("a")
	m := w.only()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := w.backend.authority.signMachine("default-b-1", key.Public(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	node, err := tls.LoadX509KeyPair(w.backend.authority.path(nodeFile), w.backend.authority.path(nodeKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, shown := range map[string][]tls.Certificate{
		"no certificate": nil, "another machine's": {{Certificate: [][]byte{block.Bytes}, PrivateKey: key}}, "the node's": {node},
	} {
		conn, err := tls.Dial("tcp", net.JoinHostPort(m.Address, strconv.Itoa(w.lab.port)), &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{"h2"}, // which is not what is checked
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(shown) == 0 {
					return &tls.Certificate{}, nil
				}
				return &shown[0], nil
			},
		})
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			_, err = conn.Read(make([]byte, 1)) // the server speaks first, unless it refuses
			_ = conn.Close()
		}
		if (err == nil) != (name == "the node's") {
			t.Errorf("a client with %s: %v", name, err)
		}
	}
}

// A machine that has another one's certificate is given no pod.
func TestMachineWithTheCertificateOfAnother(t *testing.T) {
	w, m := begun(t)
	c := newCaller(t, m)
	if status, _ := c.ask(t, nil); status != http.StatusOK {
		t.Fatal(status)
	}
	certificate, err := w.backend.authority.signMachine("default-b-1", c.key.Public(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	listener, err := net.Listen("tcp", net.JoinHostPort(m.Address, strconv.Itoa(w.lab.port)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server := tls.NewListener(listener, &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: c.key}}})
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*tls.Conn).HandshakeContext(t.Context()); err == nil {
		if _, err = conn.Read(make([]byte, 1)); err == nil {
			t.Error("the node speaks with a machine that is another")
		}
	}
}

// What a machine sends is about its own pod, and bounded.
func TestStatusesOfAHostileMachine(t *testing.T) {
	owner := podgroup.Owner{Namespace: "default", Name: "a", UID: "uid-a"}
	l := &link{owner: owner, fresh: make(chan struct{}, 1)}
	report := func(namespace, name, uid string, status corev1.PodStatus) {
		pod := &corev1.Pod{Status: status}
		pod.Namespace, pod.Name = namespace, name
		pod.UID = "" + corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: owner.UID}}.UID
		if uid != string(owner.UID) {
			pod.UID = "other"
		}
		l.take(pod)
	}
	failed := corev1.PodStatus{Phase: corev1.PodFailed}
	report("default", "b", "uid-a", failed)
	report("other", "a", "uid-a", failed)
	report("default", "a", "other", failed)
	report("default", "a", "uid-a", corev1.PodStatus{})
	if status, _ := l.observed(); status != nil {
		t.Errorf("a status of another pod, or of none, was taken: %v", status)
	}
	long := strings.Repeat("ä", 1<<20)
	huge := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", HostIP: "10.0.0.2", Message: long}
	for range 5000 {
		huge.ContainerStatuses = append(huge.ContainerStatuses, corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: long}}})
	}
	report("default", "a", "uid-a", huge)
	status, _ := l.observed()
	data, err := json.Marshal(status)
	if err != nil || len(status.ContainerStatuses) > maxContainers || len(status.Message) > maxText || len(data) > 2*maxText*maxContainers {
		t.Errorf("%d bytes are kept: %v", len(data), err)
	}
	if status.PodIP != "" || status.HostIP != "" {
		t.Error("a machine names the pod's address")
	}
	m := &member{machine: Machine{Name: "default-a-1", Address: "192.0.2.7"}, link: l}
	if u := (&backend{}).unitLocked(m); len(u.IPs) != 1 || u.IPs[0] != "192.0.2.7" {
		t.Errorf("the addresses of the pod are %v", u.IPs)
	}
}

// A machine is sent nothing of other pods.
func TestOnePod(t *testing.T) {
	w := newWorld(t)
	a := w.pod("a")
	w.pod("b")
	all := onePod{w.cluster.Config().Pods, podgroup.OwnerOf(a)}
	pods, err := all.List(labels.Everything())
	if err != nil || len(pods) != 1 || pods[0].Name != "a" {
		t.Errorf("it lists %d pods: %v", len(pods), err)
	}
	if _, err := all.Pods("default").Get("b"); err == nil {
		t.Error("it shows another pod")
	}
	all.owner.UID = "earlier"
	if _, err := all.Pods("default").Get("a"); err == nil {
		t.Error("it shows a later pod of the same name")
	}
}

// A state directory without its authority makes another one; machines of the earlier one are not
// given a pod.
func TestAuthorityThatIsLost(t *testing.T) {
	w, m := begun(t)
	w.stop()
	for _, name := range []string{authorityFile, authorityKeyFile} {
		if err := os.Remove(filepath.Join(w.cfg.StateDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	pod := w.pod("a")
	err := w.provider.CreatePod(t.Context(), pod)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "authority") {
		t.Errorf("the pod is created: %v", err)
	}
	if w.lab.all()[m.Name] != nil {
		t.Error("the machine is there")
	}
}

// Callers that send slowly, or nothing, keep no machine from its certificate.
func TestSlowCallersHoldUpNobody(t *testing.T) {
	_, m := begun(t)
	c := newCaller(t, m)
	address := strings.TrimPrefix(c.bootstrap.URL, "https://")
	for range 2 * callers {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // which is not what is checked
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("POST " + agent.CertificatePath + " HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n{")); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if status, _ := c.ask(t, nil); status != http.StatusOK {
			t.Errorf("a machine is answered with %d", status)
		}
	}
}

// A caller that opens connections without end has its oldest ones closed, and nobody else.
func TestCallersThatOpenManyConnections(t *testing.T) {
	_, m := begun(t)
	c := newCaller(t, m)
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.bootstrap.URL, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	other := dial("127.0.0.1")
	var hostile []net.Conn
	for range pendingconns.Max + 50 {
		hostile = append(hostile, dial("127.6.6.6"))
	}
	for i, conn := range hostile[:50] {
		_ = conn.SetReadDeadline(time.Now().Add(callTimeout / 2)) // before it would be closed for its silence
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is open", i)
		}
	}
	if err := tls.Client(other, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
		t.Errorf("the connection of another host is closed: %v", err)
	}
	if status, _ := c.ask(t, nil); status != http.StatusOK {
		t.Errorf("a machine is answered with %d", status)
	}
}

// An agent asks for its certificate again before it expires, and for as long as it takes if the node
// is away meanwhile; the node accepts no certificate that has expired.
func TestCertificatesAreRenewed(t *testing.T) {
	w := newWorld(t)
	w.cfg.CertificateLifetime = metav1.Duration{Duration: 4 * time.Second}
	w.start()
	pod := w.run("a")
	m := w.only()
	shown := func() *x509.Certificate {
		t.Helper()
		conn, err := tls.Dial("tcp", net.JoinHostPort(m.Address, strconv.Itoa(w.lab.port)), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	first := shown()
	w.eventually("it is renewed before it expires", func() error {
		if next := shown(); !next.NotAfter.After(first.NotAfter) {
			return errors.New("it is the same")
		} else if !next.PublicKey.(*ecdsa.PublicKey).Equal(first.PublicKey) {
			t.Fatal("the key is another one")
		}
		return nil
	})
	w.stop()
	last := shown()
	w.eventually("it has expired", func() error {
		if now := shown(); now.NotAfter.After(last.NotAfter) {
			last = now
		}
		if time.Now().Before(last.NotAfter) {
			return errors.New("not yet")
		}
		return nil
	})
	w.start()
	w.eventually("the node and the machine know each other again", func() error {
		if err := w.hasPhase(pod, corev1.PodRunning); err != nil {
			return err
		}
		logs, err := w.provider.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
		if err != nil {
			return err
		}
		return logs.Close()
	})
	if !shown().NotAfter.After(last.NotAfter) || w.lab.made() != 1 {
		t.Errorf("the certificate is the same; %d machines were made", w.lab.made())
	}
}

// The figures of a machine are those of its pod, and bounded.
func TestFiguresOfAHostileMachine(t *testing.T) {
	l := &link{images: map[string]string{"main": "busybox"}}
	long := strings.Repeat("x", 1<<20)
	in := &stats.PodStats{Network: &stats.NetworkStats{InterfaceStats: stats.InterfaceStats{Name: long}}}
	for i := range 5000 {
		in.Containers = append(in.Containers, stats.ContainerStats{Name: "main"}, stats.ContainerStats{Name: "other" + strconv.Itoa(i)})
		in.VolumeStats = append(in.VolumeStats, stats.VolumeStats{Name: "v"}, stats.VolumeStats{Name: long})
		in.Network.Interfaces = append(in.Network.Interfaces, stats.InterfaceStats{Name: "eth"})
	}
	out := l.boundedStats(in)
	data, err := json.Marshal(out)
	if err != nil || len(out.Containers) != 1 || len(data) > 64<<10 {
		t.Errorf("%d bytes are kept, of %d containers: %v", len(data), len(out.Containers), err)
	}
}

// A machine that sends statuses without end costs the API server little, and its last one counts.
func TestFloodOfStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := podgroup.Owner{Namespace: "default", Name: "a", UID: "uid-a"}
		m := &member{record: &record{Given: true}, machine: Machine{Name: "a-1"}}
		published, last := 0, ""
		b := &backend{members: map[string]*member{"a-1": m}, notify: func(u podgroup.Unit) {
			published++
			last = u.Containers[0].Now.Message
		}}
		l := &link{b: b, m: m, owner: owner, fresh: make(chan struct{}, 1)}
		m.link = l
		ctx, cancel := context.WithCancel(t.Context())
		go l.publish(ctx)
		for i := range 6000 { // in a minute
			time.Sleep(10 * time.Millisecond)
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name, pod.UID = owner.Namespace, owner.Name, owner.UID
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: strconv.Itoa(i)}},
			}}}
			l.take(pod)
		}
		time.Sleep(2 * publishInterval)
		cancel()
		synctest.Wait()
		if published < 60 || published > 60+publishBurst+2 || last != "5999" {
			t.Errorf("%d statuses were published, the last one is number %s", published, last)
		}
	})
}

// figuresHang is an agent that gives no figures.
type figuresHang struct{ nodeutil.Provider }

func (figuresHang) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Machines that cannot be reached do not hold up the figures of the others.
func TestFiguresOfUnreachableMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{members: map[string]*member{}}
		var units []*podgroup.Unit
		for i := range 1000 {
			l := &link{ready: make(chan struct{}), provider: figuresHang{}, silent: time.Minute}
			close(l.ready)
			name := strconv.Itoa(i)
			b.members[name] = &member{link: l}
			units = append(units, &podgroup.Unit{ID: name})
		}
		began := time.Now()
		found, err := b.Usage(t.Context(), units)
		if took := time.Since(began); err != nil || len(found) != len(units) || took > time.Second {
			t.Errorf("%d figures take %v: %v", len(found), took, err)
		}
	})
}
