package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// expiresSoon is how long before its end a certificate should have been renewed.
const expiresSoon = 7 * 24 * time.Hour

// dialTimeout is how long the kubelet API may take to answer this machine, which often
// cannot reach it.
const dialTimeout = 5 * time.Second

// presented is what the kubelet API presents to this machine.
type presented struct {
	host, port  string
	certificate *x509.Certificate // nil without one
	unreachable error             // for this machine
	refused     error             // why the handshake failed
}

// present asks the kubelet API for its certificate, once.
func (e *examination) present(ctx context.Context) *presented {
	if e.presented != nil {
		return e.presented
	}
	p := &presented{}
	e.presented = p
	if p.host, p.port = e.endpoint(); p.host == "" || p.port == "0" {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.host, p.port))
	if err != nil {
		p.unreachable = err
		return p
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // it is looked at, not trusted
	if err := client.HandshakeContext(ctx); err != nil {
		p.refused = err
		return p
	}
	p.certificate = client.ConnectionState().PeerCertificates[0]
	return p
}

// checkCertificate looks at the certificate that the kubelet API presents. Who signed it
// matters to the API server alone: see checkAddress.
func checkCertificate(ctx context.Context, e *examination) Finding {
	p := e.present(ctx)
	at := net.JoinHostPort(p.host, p.port)
	switch {
	case p.host == "" || p.port == "0":
		return failed("see the log of the process", "the Node has no address with a port of the kubelet API")
	case p.unreachable != nil:
		return notChecked("this machine cannot reach it: %v", p.unreachable)
	case p.refused != nil:
		return failed("see the log of the process; with --serving-certificate=cluster: kubectl get csr", "what this machine reaches at %s offers no certificate: %v", at, p.refused)
	}
	renew := "new files --tls-cert-file and --tls-private-key-file, for " + Word(p.host) + ", which are read at once; or --serving-certificate=cluster"
	if problem := problemOf(p.certificate, p.host, e.now()); problem != "" {
		return failed(renew, "what this machine reaches at %s has a certificate of which %s", at, problem)
	}
	if e.now().Add(expiresSoon).After(p.certificate.NotAfter) {
		return warning(renew, "it expires soon, at %s", p.certificate.NotAfter.Format(time.RFC3339))
	}
	return ok("for %s, until %s", p.host, p.certificate.NotAfter.Format(time.RFC3339))
}

// problemOf returns what is wrong with a certificate at a time; empty if nothing is.
func problemOf(certificate *x509.Certificate, host string, now time.Time) string {
	switch {
	case now.After(certificate.NotAfter):
		return "it has expired, at " + certificate.NotAfter.Format(time.RFC3339)
	case now.Before(certificate.NotBefore):
		return "it is not valid before " + certificate.NotBefore.Format(time.RFC3339)
	}
	if err := certificate.VerifyHostname(host); err != nil {
		return "it is not for the node's address: " + err.Error()
	}
	return ""
}

// now is the time by the API server's clock.
func (e *examination) now() time.Time { return time.Now().Add(e.skew) }

// preferred are the kinds of addresses in the order in which an API server that kubeadm
// configured uses them.
var preferred = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}

// endpoint returns where the node's kubelet API is. The host is empty if it has none.
func (e *examination) endpoint() (host, port string) {
	port = strconv.Itoa(int(e.object.Status.DaemonEndpoints.KubeletEndpoint.Port))
	for _, kind := range preferred {
		for _, address := range e.object.Status.Addresses {
			if address.Type == kind {
				return address.Address, port
			}
		}
	}
	return "", port
}

// checkAddress has the API server ask the node for its health, as it does for kubectl
// logs and exec: verbosely, since the node asks nobody for credentials otherwise.
func checkAddress(ctx context.Context, e *examination) Finding {
	err := e.client.CoreV1().RESTClient().Get().Resource("nodes").Name(e.node.Name).SubResource("proxy").Suffix("healthz").Param("verbose", "true").Do(ctx).Error()
	if err == nil {
		return ok("the API server reaches the kubelet API")
	}
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(text, "cannot get resource"):
		return e.unread("nodes/proxy", err)
	case apierrors.IsForbidden(err):
		return failed("kubectl create clusterrolebinding kubelet-api-admin --clusterrole system:kubelet-api-admin --user with the name in the API server's --kubelet-client-certificate",
			"the node does not let the API server do what it asks for kubectl logs and exec: %s", text)
	case apierrors.IsUnauthorized(err):
		return failed("virtual-kubelet --client-ca-file with the CA of the API server's --kubelet-client-certificate, which it has to have", "the node refuses the API server: %s", text)
	case errors.Is(err, context.DeadlineExceeded):
		return e.unreachable("it has no answer after " + checkTimeout.String())
	case strings.Contains(text, "x509:"):
		return failed("virtual-kubelet --serving-certificate=cluster, or files that the CA of the API server's --kubelet-certificate-authority has signed",
			"the API server does not trust the node's certificate: %s", text)
	case strings.Contains(text, "tls: internal error"):
		return failed("kubectl get csr shows the request for one, which has to be approved", "the node has no serving certificate yet: %s", text)
	case strings.Contains(text, "no such host"):
		return failed("--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname for the API server, or a DNS name for the node that it can resolve",
			"the API server looks the node up by a name that it cannot resolve: %s", text)
	case strings.Contains(text, "No agent available"):
		return failed("kubectl get pods -A | grep -e konnectivity -e tunnel", "the API server reaches nodes by a tunnel, which no agent serves: %s", text)
	case strings.Contains(text, "healthz check failed"):
		return failed("see the log of the process, and restart it", "the API server reaches the kubelet API, which is not well: %s", text)
	}
	return e.unreachable(text)
}

// unreachable is the finding that the API server does not reach the kubelet API.
func (e *examination) unreachable(why string) Finding {
	host, port := e.endpoint()
	return failed("open port "+port+" of "+Word(host)+" to the API server (firewalls, security groups, NetworkPolicies, --listen-address), or set VKUBELET_POD_IP to an address that it reaches",
		"the API server cannot reach the kubelet API at %s:%s, for kubectl logs and exec: %s", host, port, why)
}
