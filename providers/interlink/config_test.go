package interlink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// A file as the users of interLink's own virtual kubelet have it, numbers as text or not.
const usersFile = `
InterlinkURL: "http://10.0.0.1"
InterlinkPort: 3000
KubernetesApiAddr: ""
VKConfigPath: /etc/interlink/InterLinkConfig.yaml
VKTokenFile: /opt/interlink/token
ServiceAccount: interlink
Namespace: interlink
PodIP: 10.0.0.9
VerboseLogging: true
ErrorsOnlyLogging: false
DisableProjectedVolumes: true
HTTP: {Insecure: true}
KubeletHTTP:
  Insecure: true
Resources:
  CPU: 100
  Memory: "128Gi"
  Pods: "100"
  Accelerators:
  - {ResourceType: nvidia.com/gpu, Model: a100, Available: 2}
  - {ResourceType: nvidia.com/gpu, Model: h100, Available: "3"}
NodeLabels: ["accelerator=a100", "empty="]
NodeTaints:
- {Key: accelerator, Value: a100, Effect: NoSchedule}
TLS: {Enabled: false}
Network: {EnableTunnel: false, WildcardDNS: example.org, SSH: {Port: 22}}
PodCIDR: {Subnet: 10.10.0.0/24, MaxIP: 250, MinIP: 2}
SkipDownwardAPIResolution: true
DisableCSR: true
Pprof: {Enabled: false}
`

func TestUsersFile(t *testing.T) {
	c, err := ParseConfig([]byte(usersFile))
	if err != nil {
		t.Fatal(err)
	}
	base, _, err := c.endpoint()
	gpus := c.capacity()["nvidia.com/gpu"]
	if err != nil || base.String() != "http://10.0.0.1:3000" || c.Resources.CPU.String() != "100" || gpus.String() != "5" || c.PodIP != "10.0.0.9" || !c.HTTP.Insecure {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestMistakes(t *testing.T) {
	_, err := ParseConfig([]byte(`{InterlinkURL: "ftp://user:password@host", InterlinkPort: many, Nodelabel: [], NodeLabels: [nothing], NodeTaints: [{Key: a, Effect: Never}],
		Network: {EnableTunnel: true, FullMesh: true}, TLS: {CertFile: a}, Resources: {CPU: -1, Accelerators: [{ResourceType: "a b", Available: 1}]}}`))
	if !errdefs.IsInvalidInput(err) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"InterlinkURL", `"Nodelabel"`, "NodeLabels[0]", "NodeTaints[0]", "Network.EnableTunnel", "Network.FullMesh", "TLS:", "Resources.CPU", "Resources.Accelerators[0].ResourceType",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "password") {
		t.Errorf("the error shows a password: %v", err)
	}
	if _, _, err := New(grouptest.NewCluster("a").Config(), Config{}); !errdefs.IsInvalidInput(err) {
		t.Errorf("an empty configuration: %v", err)
	}
}

func TestEndpoints(t *testing.T) {
	for _, test := range []struct{ url, port, want, socket string }{
		{"https://host", "443", "https://host:443", ""},
		{"https://host:8443/path/", "", "https://host:8443/path/", ""},
		{"http://[fd00::1]", "3000", "http://[fd00::1]:3000", ""},
		{"unix:///run/interlink.sock", "", "http://unix", "/run/interlink.sock"},
		{"http+unix:///run/interlink.sock", "0", "http://unix", "/run/interlink.sock"},
		{"unix://relative", "", "", ""},
		{"http://host:1", "2", "", ""},
		{"http://host", "65536", "", ""},
		{"host", "3000", "", ""},
	} {
		c := Config{InterlinkURL: test.url, InterlinkPort: test.port}
		base, socket, err := c.endpoint()
		if base == nil {
			base = &url.URL{}
		}
		if base.String() != test.want || socket != test.socket || (err == nil) != (test.want != "") {
			t.Errorf("%s and %s: %s, %s, %v", test.url, test.port, base, socket, err)
		}
	}
}

// ping makes a provider, and pings the server.
func ping(t *testing.T, c Config) error {
	t.Helper()
	p, n, err := New(grouptest.NewCluster("a").Config(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	return n.Ping(t.Context())
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "interlink.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	if err := ping(t, Config{InterlinkURL: "unix://" + path}); err != nil {
		t.Error(err)
	}
}

func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "server", ca, caKey)
	certificate(t, dir, "client", ca, caKey)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.StartTLS()
	defer server.Close()
	files := TLS{Enabled: true, CACertFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key")}
	if err := ping(t, Config{InterlinkURL: server.URL, TLS: files}); err != nil {
		t.Error(err)
	}
	if err := ping(t, Config{InterlinkURL: server.URL, TLS: TLS{Enabled: true, CACertFile: files.CACertFile}}); err == nil {
		t.Error("the server takes a client without a certificate")
	}
	if err := ping(t, Config{InterlinkURL: server.URL}); err == nil {
		t.Error("the client takes a server of an unknown CA")
	}
	files.KeyFile = filepath.Join(dir, "nothing")
	if _, _, err := New(grouptest.NewCluster("a").Config(), Config{InterlinkURL: server.URL, TLS: files}); !errdefs.IsInvalidInput(err) {
		t.Errorf("a key that is not there: %v", err)
	}
}

// certificate writes a certificate and its key, signed by another one or itself.
func certificate(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: ca == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if ca == nil {
		ca, caKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, key
}
