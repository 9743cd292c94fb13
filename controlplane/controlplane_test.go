package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func newLayout(t *testing.T) layout {
	t.Helper()
	l, _, err := prepareDir(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestReservedPortIsOurs(t *testing.T) {
	first, err := reservePort(loopback, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	if _, err := reservePort(loopback, first.port); err == nil {
		t.Error("a second control plane got the port")
	}
	if l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback, Port: first.port}); err == nil {
		l.Close()
		t.Error("another program got the port")
	}
}

func TestAPIServerPortIsRemembered(t *testing.T) {
	l := newLayout(t)
	first, err := reserveAPIServerPort(l, loopback, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reserveAPIServerPort(l, loopback, 0); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	first.release()
	second, err := reserveAPIServerPort(l, loopback, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if first.port != second.port {
		t.Errorf("got port %d, want %d", second.port, first.port)
	}
}

func TestCertificatesAreReusedUntilTheyMustChange(t *testing.T) {
	l := newLayout(t)
	ips := []net.IP{loopback}
	first, err := ensurePKI(l, ips)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ensurePKI(l, ips)
	if err != nil {
		t.Fatal(err)
	}
	if !first.apiServer.cert.Equal(again.apiServer.cert) || !first.ca.cert.Equal(again.ca.cert) {
		t.Error("the certificates changed without a reason")
	}
	moved, err := ensurePKI(l, append(ips, net.IPv4(192, 0, 2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := moved.apiServer.cert.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
	if !first.ca.cert.Equal(moved.ca.cert) || !first.admin.cert.Equal(moved.admin.cert) {
		t.Error("more than the API server's certificate changed")
	}
}

func TestKubeconfigOfOthersIsNotOverwritten(t *testing.T) {
	l := newLayout(t)
	p, err := ensurePKI(l, []net.IP{loopback})
	if err != nil {
		t.Fatal(err)
	}
	ours, foreign := l.kubeconfig("admin"), filepath.Join(l.dir, "foreign")
	if err := writeKubeconfig(ours, "https://127.0.0.1:1", p.ca, p.admin); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte("apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts: [{name: prod}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{ours: true, filepath.Join(l.dir, "none"): true, foreign: false} {
		if err := checkKubeconfigTarget(path); (err == nil) != want {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestParseExtra(t *testing.T) {
	got, err := parseExtra([]string{"kube-scheduler=--v=4", "kube-scheduler=--x"})
	if err != nil || !slices.Equal(got[schedulerName], []string{"--v=4", "--x"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"kube-scheduler", "kubelet=--v=4", "kubectl=--v=4", "kube-scheduler=v"} {
		if _, err := parseExtra([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestEphemeralNeverRemovesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := prepareDir(dir, true); err == nil {
		t.Error("a directory with files was accepted")
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(strings.Repeat("x\n", 1<<16)+"a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := string(tail(file, 2)); got != "a\nb" {
		t.Errorf("got %q", got)
	}
}
