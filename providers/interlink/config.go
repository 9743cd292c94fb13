package interlink

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config configures where the interLink API server is, and what the node offers. Its names
// are those of the configuration file of interLink's own virtual kubelet
// (InterLinkConfig.yaml), of which it takes all; README.md says which do nothing here.
type Config struct {
	// InterlinkURL is where the API server is: http://, https:// or unix:// with the path
	// of a socket. Required. InterlinkPort is its port.
	InterlinkURL  string `json:"InterlinkURL"`
	InterlinkPort string `json:"InterlinkPort"`
	// VKTokenFile is a file with the bearer token of each request, which is read each time.
	VKTokenFile string `json:"VKTokenFile"`
	// TLS is for https.
	TLS TLS `json:"TLS"`
	// HTTP is how certificates of https are verified without TLS.CACertFile.
	HTTP HTTP `json:"HTTP"`

	// PodIP is the address that all pods show. Defaults to none.
	PodIP string `json:"PodIP"`
	// Resources are the node's, unless the server reports some.
	Resources Resources `json:"Resources"`
	// NodeLabels are labels of the node, as key=value, and NodeTaints taints of it.
	NodeLabels []string `json:"NodeLabels"`
	NodeTaints []Taint  `json:"NodeTaints"`
	// PodFields changes which fields of a pod's spec the plugin is trusted with, as
	// podgroup.Features.Fields does: volumes.nfs, -containers.livenessProbe.
	PodFields []string `json:"PodFields"`

	// TokenLifetime is how long tokens of service accounts are valid at least, since those of
	// a pod that runs cannot be renewed. They end with the pod. Defaults to a year, which is
	// what API servers make of the default of pods.
	TokenLifetime metav1.Duration `json:"TokenLifetime"`

	// DisableProjectedVolumes leaves projected volumes out, and so tokens.
	DisableProjectedVolumes bool `json:"DisableProjectedVolumes"`
	// JobScriptBuilderURL is passed on.
	JobScriptBuilderURL string `json:"JobScriptBuilderURL"`
	// KubernetesAPIAddr, KubernetesAPIPort and KubernetesAPICACert are those of the
	// cluster's API server, seen from the pods: for KUBERNETES_SERVICE_HOST and its like,
	// and instead of the contents of the ConfigMap kube-root-ca.crt.
	KubernetesAPIAddr   string `json:"KubernetesApiAddr"`
	KubernetesAPIPort   string `json:"KubernetesApiPort"`
	KubernetesAPICACert string `json:"KubernetesApiCaCrt"`

	// Network is about tunnels to pods, which this provider does not make.
	Network Network `json:"Network"`

	ignored `json:",inline"`
}

// TLS are files of certificates.
type TLS struct {
	Enabled bool `json:"Enabled"`
	// CertFile and KeyFile are those of the node, for mutual TLS. They are read again when
	// a connection is made. CACertFile is the CA of the server.
	CertFile   string `json:"CertFile"`
	KeyFile    string `json:"KeyFile"`
	CACertFile string `json:"CACertFile"`
}

// HTTP is how the server's certificate is verified.
type HTTP struct {
	Insecure bool   `json:"Insecure"`
	CACert   string `json:"CaCert"`
}

// Resources are those of a node. CPU, Memory and Pods default to 100, 3000G and 10000.
type Resources struct {
	CPU          *resource.Quantity `json:"CPU"`
	Memory       *resource.Quantity `json:"Memory"`
	Pods         *resource.Quantity `json:"Pods"`
	Accelerators []Accelerator      `json:"Accelerators"`
}

// Accelerator is a kind of devices, such as nvidia.com/gpu.
type Accelerator struct {
	ResourceType string            `json:"ResourceType"`
	Model        string            `json:"Model"`
	Available    resource.Quantity `json:"Available"`
}

// Taint is one of the node. Effect defaults to NoSchedule.
type Taint struct {
	Key    string             `json:"Key"`
	Value  string             `json:"Value"`
	Effect corev1.TaintEffect `json:"Effect"`
}

// Network has settings of tunnels: EnableTunnel and FullMesh have to be off, and the others are
// ignored.
type Network map[string]any

// ignored are settings that have another place here, such as a flag of the binary, or no
// meaning: they must not break a configuration that has them.
type ignored struct {
	VKConfigPath, ServiceAccount, Namespace               string
	VerboseLogging, ErrorsOnlyLogging                     bool
	KubeletHTTP                                           HTTP
	KubeletCertFile, KubeletKeyFile, KubeletCSRSignerName string
	SkipDownwardAPIResolution, DisableCSR                 bool
	PodCIDR, Pprof                                        map[string]any
}

// ParseConfig decodes a configuration file, in YAML or JSON. It is strict: the error, of
// class InvalidInput, names all that is wrong.
func ParseConfig(data []byte) (c Config, err error) {
	err = (config.Decoder{Loose: true}).Decode(data, &c, c.Complete)
	return c, config.Invalid("interlink", err)
}

const defaultTokenLifetime = 365 * 24 * time.Hour

// The default capacity.
const (
	defaultCPU    = "100"
	defaultMemory = "3000G"
	defaultPods   = "10000"
)

// Complete sets defaults, and returns an error that names all mistakes.
func (c *Config) Complete() error {
	var wrong config.Checks
	check := wrong.That
	for _, field := range []*string{&c.InterlinkURL, &c.InterlinkPort, &c.VKTokenFile, &c.PodIP} {
		*field = strings.TrimSpace(*field)
	}
	if _, _, err := c.endpoint(); err != nil {
		wrong = append(wrong, err)
	}
	wrong.Quantity("Resources.CPU", &c.Resources.CPU, defaultCPU)
	wrong.Quantity("Resources.Memory", &c.Resources.Memory, defaultMemory)
	wrong.Quantity("Resources.Pods", &c.Resources.Pods, defaultPods)
	for i, a := range c.Resources.Accelerators {
		check(len(validation.IsQualifiedName(a.ResourceType)) == 0, "Resources.Accelerators[%d].ResourceType: %q is no name of a resource, such as nvidia.com/gpu", i, a.ResourceType)
		check(a.Available.Sign() >= 0, "Resources.Accelerators[%d].Available: %s is negative", i, &a.Available)
	}
	for i, label := range c.NodeLabels {
		key, value, ok := strings.Cut(label, "=")
		check(ok && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0, "NodeLabels[%d]: %q is no label, such as key=value", i, label)
	}
	for i, t := range c.NodeTaints {
		if t.Effect == "" {
			c.NodeTaints[i].Effect = corev1.TaintEffectNoSchedule
		}
		check(isTaint(t.Key, t.Value, c.NodeTaints[i].Effect), "NodeTaints[%d]: %s=%s:%s is no taint: Effect is one of NoSchedule, PreferNoSchedule and NoExecute", i, t.Key, t.Value, t.Effect)
	}
	for _, tunnel := range []string{"EnableTunnel", "FullMesh"} {
		on, _ := c.Network[tunnel].(bool)
		check(!on, "Network.%s: this provider makes no tunnels to pods: set it to false", tunnel)
	}
	check(c.TokenLifetime.Duration >= 0, "TokenLifetime: %s is negative", c.TokenLifetime.Duration)
	c.TokenLifetime.Duration = cmp.Or(c.TokenLifetime.Duration, defaultTokenLifetime)
	check((c.TLS.CertFile == "") == (c.TLS.KeyFile == ""), "TLS: set both of CertFile and KeyFile, or none")
	return wrong.Err()
}

func isTaint(key, value string, effect corev1.TaintEffect) bool {
	return len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 &&
		slices.Contains([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}, effect)
}

// endpoint returns the URL of the server, and the path of its socket, if it has one.
func (c *Config) endpoint() (base *url.URL, socket string, err error) {
	for _, scheme := range []string{"unix://", "http+unix://"} {
		if path, ok := strings.CutPrefix(c.InterlinkURL, scheme); ok {
			if !strings.HasPrefix(path, "/") {
				return nil, "", fmt.Errorf("InterlinkURL: %q has no absolute path of a socket: write unix:///run/interlink.sock", c.InterlinkURL)
			}
			return &url.URL{Scheme: "http", Host: "unix"}, path, nil
		}
	}
	base, err = url.Parse(c.InterlinkURL)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, "", errors.New("InterlinkURL: it is not a URL such as https://interlink.example.org or unix:///run/interlink.sock")
	}
	switch port := base.Port(); {
	case c.InterlinkPort == "" || c.InterlinkPort == port:
	case port != "":
		return nil, "", fmt.Errorf("InterlinkPort: it is %q, and InterlinkURL has port %s: leave out one of the two", c.InterlinkPort, port)
	default:
		if number, err := strconv.Atoi(c.InterlinkPort); err != nil || len(validation.IsValidPortNum(number)) > 0 {
			return nil, "", fmt.Errorf("InterlinkPort: %q is no port", c.InterlinkPort)
		}
		base.Host += ":" + c.InterlinkPort
	}
	return base, "", nil
}
