package machine

import (
	"cmp"
	"encoding/json"
	"net"
	"net/url"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config is the provider's configuration file. README.md has a table of the fields.
type Config struct {
	// Cluster is the name that distinguishes the machines of this Kubernetes cluster from those
	// of others. Required.
	Cluster string `json:"cluster"`
	// StateDir has the node's certificate authority and a record for each machine; nobody else
	// may read it, and it has to last. Required.
	StateDir string `json:"stateDir"`
	// Exec is the driver that is a command, and Qemu the one that runs virtual machines on this
	// host. EC2 is that of package providers/machine/ec2, which decodes it: a module of its own,
	// whose driver New is given. One of them is required.
	Exec *ExecConfig     `json:"exec,omitempty"`
	Qemu *QemuConfig     `json:"qemu,omitempty"`
	EC2  json.RawMessage `json:"ec2,omitempty"`
	// Bootstrap is where machines reach the node.
	Bootstrap BootstrapConfig `json:"bootstrap,omitzero"`
	// Types are those of machines, if the driver has some. A pod that none of them has room for is
	// refused. Without any, the driver is asked for what pods need.
	Types []TypeConfig `json:"types,omitempty"`
	// Warm are machines in reserve, without a table of types. With one, each type has a number of
	// them.
	Warm *WarmConfig `json:"warm,omitempty"`
	// AgentPort is the port at which agents listen. Defaults to 10270.
	AgentPort int `json:"agentPort,omitempty"`

	// BootTimeout is how long a machine may take until its agent has a certificate. Defaults to
	// 10m.
	BootTimeout metav1.Duration `json:"bootTimeout,omitzero"`
	// MissingTimeout is for how long lists have to lack a machine before its pod has failed, and
	// UnreachableTimeout for how long its agent has to be out of reach before it is deleted, and
	// its pod has failed. Default to 1m and 5m.
	MissingTimeout     metav1.Duration `json:"missingTimeout,omitzero"`
	UnreachableTimeout metav1.Duration `json:"unreachableTimeout,omitzero"`
	// KeepFinished is how long the machine of a pod that has finished is kept, for its logs.
	// Defaults to 5m.
	KeepFinished metav1.Duration `json:"keepFinished,omitzero"`
	// ReplaceLost has another machine made for a pod whose machine was lost or taken, unless one of
	// its containers may not start again, by the restart policies. Without it the pod fails.
	ReplaceLost bool `json:"replaceLost,omitempty"`
	// Refresh is how often machines are listed. Defaults to 15s.
	Refresh metav1.Duration `json:"refresh,omitzero"`
	// CertificateLifetime is that of a machine's certificate, which its agent renews. Defaults
	// to 24h.
	CertificateLifetime metav1.Duration `json:"certificateLifetime,omitzero"`

	// CPU, Memory and Pods are the capacity of the node. Default to 1000, 4Ti and 1000.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
	// Resources are the node's capacity of what else types of machines have. Each defaults to the
	// most that a type has for each pod.
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// ExecConfig is the driver that is a command.
type ExecConfig struct {
	// Command is the program and its first arguments; the verb follows.
	Command []string `json:"command"`
}

// BootstrapConfig is where machines get their certificates.
type BootstrapConfig struct {
	// Listen is the address and port at which the node listens. Defaults to :10271, and with Qemu
	// to that port of the bridge's address.
	Listen string `json:"listen,omitempty"`
	// URL is where machines reach that, such as https://10.0.0.5:10271. Required, but with Qemu,
	// where it defaults to the bridge's address.
	URL string `json:"url,omitempty"`
}

// ParseConfig decodes a configuration file, in YAML or JSON. It is strict: the error, of class
// InvalidInput, names all that is wrong.
func ParseConfig(data []byte) (Config, error) { return ParseConfigWith(data, nil) }

// ParseConfigWith is ParseConfig for a program with drivers of other modules: check returns what is
// wrong with the field of such a driver, and with the arguments of types. It is given what the file
// has, before defaults are set; its mistakes are named with the others.
func ParseConfigWith(data []byte, check func(Config) error) (Config, error) {
	var c Config
	if err := config.Decode(data, &c, func() error {
		var wrong error
		if check != nil {
			wrong = check(c)
		}
		return config.Join(c.mistakes(), wrong)
	}); err != nil {
		return Config{}, config.Invalid("machine", err)
	}
	return c, nil
}

// complete sets defaults, and returns an error that names all mistakes.
func (c *Config) complete() error { return config.Invalid("machine", c.mistakes()) }

// mistakes sets defaults, and returns all mistakes.
func (c *Config) mistakes() error {
	var checks config.Checks
	checks.That(c.Cluster != "", "cluster: it is required: a name that no other cluster with the same machines has")
	checks.That(filepath.IsAbs(c.StateDir), "stateDir: %q is no absolute path of a directory that lasts", c.StateDir)
	drivers := 0
	for _, is := range []bool{c.Exec != nil, c.Qemu != nil, len(c.EC2) > 0} {
		if is {
			drivers++
		}
	}
	checks.That(drivers == 1, "exec, qemu, ec2: one of them is required: what makes machines")
	checks.That(c.Exec == nil || len(c.Exec.Command) > 0, "exec.command: it is required: the command that makes machines")
	if c.Qemu != nil {
		qemu := *c.Qemu // which is the caller's
		c.Qemu = &qemu
		c.Qemu.complete(&checks, &c.Bootstrap)
	}
	c.Bootstrap.Listen = cmp.Or(c.Bootstrap.Listen, ":10271")
	_, _, err := net.SplitHostPort(c.Bootstrap.Listen)
	checks.That(err == nil, "bootstrap.listen: %q is no ADDRESS:PORT", c.Bootstrap.Listen)
	at, err := url.Parse(c.Bootstrap.URL)
	checks.That(err == nil && at.Scheme == "https" && at.Host != "" && (at.Path == "" || at.Path == "/") && at.RawQuery == "",
		"bootstrap.url: %q is not https://HOST:PORT, at which machines reach the node", c.Bootstrap.URL)
	c.AgentPort = cmp.Or(c.AgentPort, 10270)
	checks.That(c.AgentPort > 0 && c.AgentPort < 1<<16, "agentPort: %d is no port", c.AgentPort)
	for _, d := range []struct {
		field  string
		value  *metav1.Duration
		preset time.Duration
	}{
		{"bootTimeout", &c.BootTimeout, 10 * time.Minute},
		{"missingTimeout", &c.MissingTimeout, time.Minute},
		{"unreachableTimeout", &c.UnreachableTimeout, 5 * time.Minute},
		{"keepFinished", &c.KeepFinished, 5 * time.Minute},
		{"refresh", &c.Refresh, 15 * time.Second},
		{"certificateLifetime", &c.CertificateLifetime, 24 * time.Hour},
	} {
		checks.That(d.value.Duration >= 0, "%s: %v is negative", d.field, d.value.Duration)
		d.value.Duration = cmp.Or(d.value.Duration, d.preset)
	}
	checks.Quantity("cpu", &c.CPU, "1000")
	checks.Quantity("memory", &c.Memory, "4Ti")
	checks.Quantity("pods", &c.Pods, "1000")
	c.completeTypes(&checks)
	c.checkWarm(&checks)
	return checks.Err()
}
