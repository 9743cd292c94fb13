package agent

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Bootstrap is what an agent starts with: the user data of its machine, as JSON.
type Bootstrap struct {
	// Machine is the name of the machine, and Node that of the node whose pod it runs.
	Machine string `json:"machine"`
	Node    string `json:"node"`
	// URL is where the node gives certificates, and CA the authority, in PEM, that signs its own.
	URL string `json:"url"`
	CA  string `json:"ca"`
	// Token is good for one certificate, of the first key that it comes with.
	Token string `json:"token"`
	// Port is where the agent listens.
	Port int `json:"port"`
	// Time is the node's when the machine was made. It is no earlier in the machine, although
	// its clock may be wrong.
	Time time.Time `json:"time"`
}

// ParseBootstrap decodes user data. The error, of class InvalidInput, contains none of it: there
// is a token in it.
func ParseBootstrap(data []byte) (Bootstrap, error) {
	var b Bootstrap
	if err := json.Unmarshal(data, &b); err != nil {
		return b, errdefs.InvalidInput("the bootstrap data are no JSON of an agent's: give the agent the user data of its machine as they are")
	}
	for field, value := range map[string]string{"machine": b.Machine, "node": b.Node, "url": b.URL, "ca": b.CA, "token": b.Token} {
		if value == "" {
			return b, errdefs.InvalidInputf("the bootstrap data have no field %s", field)
		}
	}
	if at, err := url.Parse(b.URL); err != nil || at.Scheme != "https" {
		return b, errdefs.InvalidInputf("the bootstrap data have the url %q, which is not https", b.URL)
	}
	if b.Port <= 0 || b.Port >= 1<<16 {
		return b, errdefs.InvalidInputf("the bootstrap data have the port %d, which is none", b.Port)
	}
	return b, nil
}

// Names in certificates.
const (
	// NodeName is that of the node: as a server that gives certificates, and as the client of
	// agents.
	NodeName = "node.virtual-kubelet.internal"
	// machineDomain is that of machines.
	machineDomain = ".machine.virtual-kubelet.internal"
)

// ServerName is the name in the certificate of a machine.
func ServerName(machine string) string { return machine + machineDomain }

// CertificatePath is where the node gives certificates.
const CertificatePath = "/v1alpha1/certificate"

// CertificateRequest is the body of a POST to CertificatePath, as JSON. It comes again with the
// same key where an answer was lost, and before a certificate expires.
type CertificateRequest struct {
	Machine string `json:"machine"`
	Token   string `json:"token"`
	// CSR is in DER: its signature proves that the sender has the key. Names in it do not
	// count.
	CSR []byte `json:"csr"`
}

// CertificateAnswer is the answer, with status 200. With 403 the node refuses the machine for
// good; with any other it is to be asked again.
type CertificateAnswer struct {
	// Certificate is in PEM.
	Certificate string `json:"certificate"`
	// Address is the machine's, as the node knows it; empty while it does not.
	Address string `json:"address,omitempty"`
	// RenewAfterSeconds is when to ask for the next one: clocks may differ.
	RenewAfterSeconds int64 `json:"renewAfterSeconds"`
}
