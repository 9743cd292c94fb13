package nomad

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says where jobs are created, and how. Its zero value is for a Nomad agent on this
// machine without ACLs.
type Config struct {
	// Address is the URL of a Nomad agent, or unix:// with the path of its socket. Defaults
	// to http://127.0.0.1:4646.
	Address string `json:"address,omitempty"`
	// Region is Nomad's. Defaults to that of the agent.
	Region string `json:"region,omitempty"`
	// Namespace is Nomad's, for all jobs. Defaults to default.
	Namespace string `json:"namespace,omitempty"`
	// Token is the secret ID of an ACL token.
	Token Secret `json:"token,omitempty"`
	// CACert and CAPath are a file and a directory of certificates that the agent's is
	// verified with; ClientCert and ClientKey are the files of this client's.
	CACert     string `json:"caCert,omitempty"`
	CAPath     string `json:"caPath,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
	// TLSServerName is the name in the agent's certificate, such as server.global.nomad.
	TLSServerName string `json:"tlsServerName,omitempty"`
	// SkipVerify accepts any certificate.
	SkipVerify bool `json:"skipVerify,omitempty"`

	// ClusterName distinguishes this cluster's jobs from those of others in the same
	// namespace of Nomad. Defaults to kubernetes.
	ClusterName string `json:"clusterName,omitempty"`
	// JobPrefix is what the IDs of jobs begin with: lower-case letters, digits and hyphens,
	// at most 16. Defaults to vk-.
	JobPrefix string `json:"jobPrefix,omitempty"`
	// Datacenters are those in which pods run without the annotation
	// nomad.hashicorp.com/datacenters. Defaults to all.
	Datacenters []string `json:"datacenters,omitempty"`
	// NodePool is Nomad's. Defaults to default.
	NodePool string `json:"nodePool,omitempty"`
	// Driver runs the containers: docker or podman. Defaults to docker.
	Driver string `json:"driver,omitempty"`
	// Network is the mode of the pods' network: bridge, host, or cni/NAME. Defaults to
	// bridge.
	Network string `json:"network,omitempty"`
	// MHzPerCPU is what a CPU of Kubernetes counts in Nomad, for requests and capacity.
	// Defaults to 2000.
	MHzPerCPU int `json:"mhzPerCPU,omitempty"`
	// MemoryOversubscription reserves what containers request, and lets them use up to
	// their limits. Nomad's scheduler has to allow it: without that a container has what
	// it requests, and no more.
	MemoryOversubscription bool `json:"memoryOversubscription,omitempty"`
	// UnsafeSubPaths accepts the subPath of an emptyDir of which a container of the pod has more,
	// writable: it can make that a link, which drivers follow to any file of Nomad's machine.
	UnsafeSubPaths bool `json:"unsafeSubPaths,omitempty"`

	// CPU, Memory and Pods are the capacity of the node. CPU and memory default to those of
	// Nomad's nodes that take work, less what others have reserved; pods to 1000.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
}

// Drivers of Nomad that run images.
const (
	driverDocker = "docker"
	driverPodman = "podman"
)

// The modes of a group's network.
const (
	networkBridge = "bridge"
	networkHost   = "host"
)

const (
	defaultAddress   = "http://127.0.0.1:4646"
	defaultMHzPerCPU = 2000
	defaultPods      = "1000"
	maxPrefix        = 16
)

// ParseConfig decodes a configuration file in YAML or JSON. It is strict: the error, of
// class InvalidInput, names all mistakes. Empty data is an empty configuration.
func ParseConfig(data []byte) (c Config, err error) {
	err = config.Decode(data, &c, nil)
	return c, config.Invalid("nomad", err)
}

// Merge overwrites settings with the environment variables of the Nomad CLI, as getenv
// returns them. An empty value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	skip := ""
	err := config.Environment(getenv, map[string]any{
		"NOMAD_ADDR": &c.Address, "NOMAD_REGION": &c.Region, "NOMAD_NAMESPACE": &c.Namespace, "NOMAD_TOKEN": (*string)(&c.Token),
		"NOMAD_CACERT": &c.CACert, "NOMAD_CAPATH": &c.CAPath, "NOMAD_CLIENT_CERT": &c.ClientCert, "NOMAD_CLIENT_KEY": &c.ClientKey,
		"NOMAD_TLS_SERVER_NAME": &c.TLSServerName, "NOMAD_SKIP_VERIFY": &skip,
	})
	if err == nil && skip != "" {
		if c.SkipVerify, err = strconv.ParseBool(skip); err != nil {
			err = fmt.Errorf("NOMAD_SKIP_VERIFY: %q is neither true nor false", skip)
		}
	}
	return config.Invalid("nomad", err)
}

var (
	prefixRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	cniRule    = regexp.MustCompile(`^cni/[A-Za-z0-9_.-]+$`)
)

// Complete sets defaults and validates the rest. The error, of class InvalidInput, names
// all mistakes.
func (c *Config) Complete() error {
	c.Token = Secret(strings.TrimSpace(string(c.Token))) // files end in a newline
	c.Address = cmp.Or(c.Address, defaultAddress)
	c.Namespace = cmp.Or(c.Namespace, "default")
	c.ClusterName = cmp.Or(c.ClusterName, "kubernetes")
	c.JobPrefix = cmp.Or(c.JobPrefix, "vk-")
	c.NodePool = cmp.Or(c.NodePool, "default")
	c.Driver = cmp.Or(c.Driver, driverDocker)
	c.Network = cmp.Or(c.Network, networkBridge)
	c.MHzPerCPU = cmp.Or(c.MHzPerCPU, defaultMHzPerCPU)
	if len(c.Datacenters) == 0 {
		c.Datacenters = []string{"*"}
	}
	var wrong config.Checks
	check := wrong.That
	u, err := url.Parse(c.Address)
	isURL := err == nil && (u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") || u.Scheme == "unix" && u.Path != "")
	check(isURL, "address: it is not a URL such as %s", defaultAddress) // without the text, which may have a password
	check(!isURL || u.User == nil, "address: it has a user: use token")
	check(c.Namespace != "*", "namespace: jobs have one: %q is none", c.Namespace)
	check(len(c.JobPrefix) <= maxPrefix && prefixRule.MatchString(c.JobPrefix), "jobPrefix: %q is not at most %d lower-case letters, digits and hyphens", c.JobPrefix, maxPrefix)
	check(slices.Contains([]string{driverDocker, driverPodman}, c.Driver), "driver: %q is neither docker nor podman", c.Driver)
	check(c.Network == networkBridge || c.Network == networkHost || cniRule.MatchString(c.Network), "network: %q is neither bridge nor host nor cni/NAME", c.Network)
	check(c.MHzPerCPU > 0, "mhzPerCPU: %d is negative", c.MHzPerCPU)
	check((c.ClientCert == "") == (c.ClientKey == ""), "clientCert and clientKey: one is missing")
	wrong.Quantity("cpu", &c.CPU, "")
	wrong.Quantity("memory", &c.Memory, "")
	wrong.Quantity("pods", &c.Pods, defaultPods)
	return config.Invalid("nomad", wrong.Err())
}

// Secret is a string that is never printed: printing, formatting or marshalling it
// results in a placeholder.
type Secret = config.Secret
