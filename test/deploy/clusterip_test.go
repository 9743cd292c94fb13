//go:build containers

package deploy

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serveClusterIP stands for kube-proxy, as far as pods need it to find the API
// server: the bridge has the address of the Service kubernetes, and what connects
// to it gets to the API server. The address goes with the bridge.
func (w *world) serveClusterIP(t *testing.T) {
	t.Helper()
	service, err := w.client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	must(t, err)
	server, err := url.Parse(w.Config().Host)
	must(t, err)
	if out, err := exec.Command("ip", "address", "add", service.Spec.ClusterIP+"/32", "dev", w.bridge(t)).CombinedOutput(); err != nil {
		t.Fatalf("give the bridge the address of the API server's Service: %v: %s", err, out)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(service.Spec.Ports[0].Port)))
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // the test ends
			}
			go forward(from, server.Host)
		}
	}()
}

// forward connects until either side ends.
func forward(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return // as if nobody listened
	}
	defer to.Close()
	done := make(chan struct{}, 2)
	pipe := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go pipe(to, from)
	go pipe(from, to)
	<-done
}

// bridge is the interface of this machine in the pods' network.
func (w *world) bridge(t *testing.T) string {
	t.Helper()
	interfaces, err := net.Interfaces()
	must(t, err)
	for _, i := range interfaces {
		addresses, _ := i.Addrs() // it may be gone
		for _, address := range addresses {
			if strings.HasPrefix(address.String(), w.containerd.Gateway()+"/") {
				return i.Name
			}
		}
	}
	t.Fatalf("no interface has the address %s", w.containerd.Gateway())
	return ""
}
