package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkCertificateRequest looks at the node's last request for a serving certificate.
func checkCertificateRequest(ctx context.Context, e *examination) Finding {
	list, err := e.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
	if err != nil {
		return e.unread("certificate signing requests", err)
	}
	var last *certificatesv1.CertificateSigningRequest
	for i := range list.Items {
		request := &list.Items[i]
		if requestedFor(request) == nodeUser+e.node.Name && (last == nil || last.CreationTimestamp.Before(&request.CreationTimestamp)) {
			last = request
		}
	}
	if last == nil {
		return ok("there is none, as with a certificate of files or a self-signed one")
	}
	again := "restart virtual-kubelet, which makes another request, and approve that: kubectl get csr"
	approved := false
	for _, c := range last.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return failed(again, "%s was denied: %s", last.Name, c.Message)
		case certificatesv1.CertificateFailed:
			return failed(again, "%s could not be signed: %s", last.Name, c.Message)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved {
		return failed("kubectl certificate approve "+last.Name, "%s waits for approval since %v", last.Name, e.since(last.CreationTimestamp.Time))
	}
	return ok("%s is approved", last.Name)
}

// requestedFor returns the name that a certificate is requested for.
func requestedFor(request *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return ""
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return parsed.Subject.CommonName
}

// expiresSoon is how long before its end a certificate should have been renewed.
const expiresSoon = 7 * 24 * time.Hour

// checkCertificate looks at the certificate that the kubelet API presents. Who signed it
// matters to the API server alone: see checkAddress.
func checkCertificate(ctx context.Context, e *examination) Finding {
	host, port := e.endpoint()
	if host == "" || port == "0" {
		return failed("see the log of the process", "the Node has no address with a port of the kubelet API")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return notChecked("this machine cannot reach it: %v", err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // it is looked at, not trusted
	if err := client.HandshakeContext(ctx); err != nil {
		return failed("see the log of the process; with --serving-certificate=cluster: kubectl get csr", "%s:%s offers no certificate: %v", host, port, err)
	}
	renew := "new files --tls-cert-file and --tls-private-key-file, for " + host + ", which are read at once; or --serving-certificate=cluster"
	presented, now := client.ConnectionState().PeerCertificates[0], time.Now().Add(e.skew)
	switch {
	case now.After(presented.NotAfter):
		return failed(renew, "it has expired, at %s", presented.NotAfter.Format(time.RFC3339))
	case now.Before(presented.NotBefore):
		return failed(renew, "it is not valid before %s", presented.NotBefore.Format(time.RFC3339))
	case presented.VerifyHostname(host) != nil:
		return failed(renew, "it is not for the node's address: %v", presented.VerifyHostname(host))
	case now.Add(expiresSoon).After(presented.NotAfter):
		return warning(renew, "it expires soon, at %s", presented.NotAfter.Format(time.RFC3339))
	}
	return ok("for %s, until %s", host, presented.NotAfter.Format(time.RFC3339))
}

// endpoint returns where the node's kubelet API is. The host is empty if it has none.
func (e *examination) endpoint() (host, port string) {
	port = strconv.Itoa(int(e.object.Status.DaemonEndpoints.KubeletEndpoint.Port))
	for _, address := range e.object.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address, port
		}
	}
	return "", port
}

// checkAddress has the API server ask the node for its health, as it does for kubectl
// logs and exec.
func checkAddress(ctx context.Context, e *examination) Finding {
	err := e.client.CoreV1().RESTClient().Get().Resource("nodes").Name(e.node.Name).SubResource("proxy").Suffix("healthz").Do(ctx).Error()
	if err == nil {
		return ok("the API server reaches the kubelet API")
	}
	host, port := e.endpoint()
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(text, "cannot get resource"):
		return e.unread("nodes/proxy", err)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return failed("virtual-kubelet --client-ca-file with the CA of the API server's --kubelet-client-certificate", "the node refuses the API server: %s", text)
	case strings.Contains(text, "x509:"):
		return failed("virtual-kubelet --serving-certificate=cluster, or files that the CA of the API server's --kubelet-certificate-authority has signed",
			"the API server does not trust the node's certificate: %s", text)
	}
	return failed("open port "+port+" of "+host+" to the API server (firewalls, security groups, NetworkPolicies, --listen-address), or set VKUBELET_POD_IP to an address that it reaches",
		"the API server cannot reach the kubelet API at %s:%s, for kubectl logs and exec: %s", host, port, text)
}
