package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// requestPatience is how long a process waits for its request to be approved, and a
	// little more. It makes another one then: one that has waited for longer is nobody's.
	requestPatience = 65 * time.Minute
	// signingTime is what a signer may need for a request that is approved.
	signingTime = time.Minute
)

// checkCertificateRequest looks at the node's last request for a serving certificate.
// Everybody who may make requests can write the name of any node into one, and give it a
// name that a shell runs: approved is to be one of the node's own only.
func checkCertificateRequest(ctx context.Context, e *examination) Finding {
	list, err := e.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
	if err != nil {
		return e.unread("certificate signing requests", err)
	}
	var last, foreign *certificatesv1.CertificateSigningRequest
	for i := range list.Items {
		request := &list.Items[i]
		parsed := ParseRequest(request)
		if parsed == nil || parsed.Subject.CommonName != nodeUser+e.node.Name {
			continue
		}
		of := &last
		if user := request.Spec.Username; user != nodeUser+e.node.Name && user != e.process() {
			if of = &foreign; len(request.Status.Conditions) > 0 {
				continue
			}
		}
		if *of == nil || (*of).CreationTimestamp.Before(&request.CreationTimestamp) {
			*of = request
		}
	}
	switch {
	case last != nil:
		found := e.examineRequest(ctx, last)
		if foreign != nil && found.Status == OK {
			return e.foreignRequest(foreign)
		}
		return found
	case foreign != nil:
		return e.foreignRequest(foreign)
	}
	return ok("there is none, as with a certificate of files or a self-signed one")
}

// foreignRequest is the finding about a request for the node's name by somebody else.
func (e *examination) foreignRequest(request *certificatesv1.CertificateSigningRequest) Finding {
	return warning("kubectl certificate deny "+Word(request.Name)+", unless the node's process is that user: then run this with its --service-account, or --kubeconfig",
		"%s asks for a certificate of this node, and %s made it, which is not the node: do not approve it", request.Name, request.Spec.Username)
}

// examineRequest looks at a request that the node made.
func (e *examination) examineRequest(ctx context.Context, request *certificatesv1.CertificateSigningRequest) Finding {
	const again = "virtual-kubelet makes another request within a minute or so; approve that: kubectl get csr --sort-by .metadata.creationTimestamp"
	bad := failed
	if e.hasCertificate(ctx) {
		bad = warning
	}
	var approved *certificatesv1.CertificateSigningRequestCondition
	for i, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return bad(again, "%s was denied: %s", request.Name, c.Message)
		case certificatesv1.CertificateFailed:
			return bad(again, "%s could not be signed: %s", request.Name, c.Message)
		case certificatesv1.CertificateApproved:
			approved = &request.Status.Conditions[i]
		}
	}
	switch {
	case approved == nil:
		return e.examinePending(ctx, request)
	case len(request.Status.Certificate) > 0:
		return ok("%s is approved and signed", request.Name)
	}
	age := e.since(approved.LastUpdateTime.Time)
	if age <= signingTime {
		return ok("%s is approved, and about to be signed", request.Name)
	}
	return bad("--tls-cert-file and --tls-private-key-file, or --serving-certificate=self-signed: some managed clusters sign for machines of their own only; in other clusters see the log of kube-controller-manager (--cluster-signing-cert-file)",
		"%s was approved %v ago, and the cluster has not signed it", request.Name, age)
}

// examinePending looks at a request that nobody has approved or denied.
func (e *examination) examinePending(ctx context.Context, request *certificatesv1.CertificateSigningRequest) Finding {
	age := e.since(request.CreationTimestamp.Time)
	wanted := namesOf(ParseRequest(request))
	if strange := e.notOfNode(wanted); len(strange) > 0 {
		return failed("kubectl certificate deny "+Word(request.Name)+"; the node makes another request for the addresses that it has",
			"%s waits for approval since %v, but asks for %s, which are no addresses of the Node: do not approve it", request.Name, age, named(strange))
	}
	approve := "kubectl certificate approve " + Word(request.Name)
	if age > requestPatience {
		return warning("none if the node has another certificate, or "+again(e.node.Name), "%s waits for approval since %v, and no process waits for it any more", request.Name, age)
	}
	if e.hasCertificate(ctx) {
		return warning(approve, "%s of %s, for %s, waits for approval since %v; the certificate in use lasts until %s",
			request.Name, request.Spec.Username, strings.Join(wanted, ", "), age, e.present(ctx).certificate.NotAfter.Format(time.RFC3339))
	}
	return failed(approve, "%s of %s, for %s, waits for approval since %v", request.Name, request.Spec.Username, strings.Join(wanted, ", "), age)
}

// hasCertificate reports whether the node's kubelet API has a certificate that is for its address,
// of this request or another source: it needs no other one for now.
func (e *examination) hasCertificate(ctx context.Context) bool {
	p := e.present(ctx)
	return p.certificate != nil && problemOf(p.certificate, p.host, e.now()) == ""
}

func again(node string) string {
	return fmt.Sprintf("start virtual-kubelet --nodename %s --serving-certificate=cluster, and approve its request", node)
}

// notOfNode returns those names and addresses that the Node does not have.
func (e *examination) notOfNode(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		for _, address := range e.object.Status.Addresses {
			if address.Address == name {
				return true
			}
		}
		return false
	})
}

// namesOf returns what a certificate is requested for.
func namesOf(request *x509.CertificateRequest) (names []string) {
	for _, ip := range request.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, request.DNSNames...)
	names = append(names, request.EmailAddresses...)
	for _, uri := range request.URIs {
		names = append(names, uri.Redacted())
	}
	return names
}

// ParseRequest returns the request for a certificate; nil if it is none.
func ParseRequest(request *certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return nil
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return parsed
}
