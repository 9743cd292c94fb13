package interlink

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// headerTimeout is how long the server may take to begin an answer: a creation waits for the
// batch system.
const headerTimeout = 2 * time.Minute

// newClient returns a client of the interLink API server. transport, if it is not nil, connects
// to the server instead of what the configuration says.
func newClient(c *Config, transport http.RoundTripper) (*rest.Client, error) {
	base, socket, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	if transport == nil {
		if transport, err = newTransport(c, socket); err != nil {
			return nil, err
		}
	}
	return &rest.Client{Service: "interLink", URL: strings.TrimRight(base.String(), "/"), Transport: transport, Token: c.token, Code: codeOf}, nil
}

func newTransport(c *Config, socket string) (*http.Transport, error) {
	t := rest.NewTransport(socket)
	t.ResponseHeaderTimeout = headerTimeout
	t.TLSClientConfig.InsecureSkipVerify = c.HTTP.Insecure // #nosec G402 -- the configuration asks for it
	ca := c.HTTP.CACert
	if c.TLS.Enabled {
		ca = cmp.Or(c.TLS.CACertFile, ca)
		if c.TLS.CertFile != "" {
			if _, err := c.TLS.clientCertificate(nil); err != nil { // now, rather than at each request
				return nil, err
			}
			t.TLSClientConfig.GetClientCertificate = c.TLS.clientCertificate
		}
	}
	if ca != "" {
		pool, err := readCA(ca)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// call returns a call, which has a name in the logs of all programs on its way. secrets are what of
// in must not be in its error.
func call(action podgroup.Action, method, path string, in any, secrets ...string) rest.Call {
	session := map[string]string{wire.SessionHeader: string(action) + "#" + rand.Text()[:8]}
	return rest.Call{Action: action, Method: method, Path: path, In: in, Header: session, Secrets: secrets}
}

// codeOf returns the code of a refusal. The server relays the statuses of the plugin, gives 500
// for most of what goes wrong, and explains both in plain text. That a path does not exist is
// nobody's answer to a creation.
func codeOf(action podgroup.Action, status int, _ []byte) string {
	if action == podgroup.ActionCreate && status == http.StatusNotFound {
		return "no such path"
	}
	return strconv.Itoa(status)
}
