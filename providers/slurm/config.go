package slurm

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config is the provider's configuration file. README.md has a table of the fields.
type Config struct {
	// Cluster is the name that distinguishes the jobs of this Kubernetes cluster from those
	// of others of the same user. Required.
	Cluster string `json:"cluster"`
	// Root is the directory of the pods, on a file system that the machine with the
	// commands shares with those of the jobs. A path that is not absolute begins in the
	// user's home directory. Defaults to .virtual-kubelet.
	Root string `json:"root,omitempty"`
	// SSH is the machine with the commands. Defaults to this one.
	SSH *SSH `json:"ssh,omitempty"`
	// Environment is that of the commands, such as SLURM_CONF or PATH.
	Environment map[string]string `json:"environment,omitempty"`

	// Partition, Account, QOS and Time are those of jobs. Default to the user's.
	Partition string `json:"partition,omitempty"`
	Account   string `json:"account,omitempty"`
	QOS       string `json:"qos,omitempty"`
	Time      string `json:"time,omitempty"`
	// Flags are further flags of sbatch.
	Flags []string `json:"flags,omitempty"`
	// GRES are the generic resources of Slurm by the resources of pods. Defaults to gpu for
	// nvidia.com/gpu and amd.com/gpu.
	GRES map[corev1.ResourceName]string `json:"gres,omitempty"`

	// Runtime runs containers. Defaults to RuntimeNone.
	Runtime Runtime `json:"runtime,omitempty"`
	// RuntimeOptions are flags of the runtime for all containers. Defaults to --compat for
	// apptainer and singularity.
	RuntimeOptions []string `json:"runtimeOptions,omitempty"`
	// ImagePrefix is what images begin with, unless they have a scheme or are paths.
	// Defaults to docker:// for apptainer, singularity and enroot.
	ImagePrefix string `json:"imagePrefix,omitempty"`
	// Preamble is run by bash at the beginning of each job.
	Preamble string `json:"preamble,omitempty"`
	// HostPaths are the directories that pods may mount, with all below them.
	HostPaths []string `json:"hostPaths,omitempty"`
	// AllowPreExec runs the annotation slurm-job.vk.io/pre-exec of pods.
	AllowPreExec bool `json:"allowPreExec,omitempty"`

	// CPU, Memory and Pods are the capacity of the node. CPU and Memory default to what the
	// partition has, Pods to 1000.
	CPU    resource.Quantity `json:"cpu,omitzero"`
	Memory resource.Quantity `json:"memory,omitzero"`
	Pods   resource.Quantity `json:"pods,omitzero"`
	// Refresh is how old a list of jobs may be that answers another call. Defaults to 5s.
	Refresh metav1.Duration `json:"refresh,omitzero"`
	// CallsPerMinute limits how often Slurm is asked. Defaults to 1000.
	CallsPerMinute int `json:"callsPerMinute,omitempty"`
	// Accounting asks sacct how jobs have ended that squeue no longer has.
	Accounting bool `json:"accounting,omitempty"`
}

// SSH is how to reach another machine.
type SSH struct {
	// Host is its name, or one of the user's configuration of ssh. Required.
	Host string `json:"host"`
	// User, Port and IdentityFile default to those of the configuration.
	User         string `json:"user,omitempty"`
	Port         int    `json:"port,omitempty"`
	IdentityFile string `json:"identityFile,omitempty"`
	// Options are further options, as in ["ProxyJump=gate"].
	Options []string `json:"options,omitempty"`
}

// argv returns the command that runs others there.
func (s *SSH) argv() []string {
	if s == nil {
		return nil
	}
	argv := []string{"ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ConnectTimeout=20"}
	for _, option := range s.Options {
		argv = append(argv, "-o", option)
	}
	if s.User != "" {
		argv = append(argv, "-l", s.User)
	}
	if s.Port != 0 {
		argv = append(argv, "-p", fmt.Sprint(s.Port))
	}
	if s.IdentityFile != "" {
		argv = append(argv, "-i", s.IdentityFile)
	}
	return append(argv, "--", s.Host)
}

// Runtime runs containers.
type Runtime string

// The runtimes.
const (
	// RuntimeNone runs the commands of containers as processes of the machine.
	RuntimeNone        Runtime = "none"
	RuntimeApptainer   Runtime = "apptainer"
	RuntimeSingularity Runtime = "singularity"
	RuntimePodman      Runtime = "podman"
	RuntimeEnroot      Runtime = "enroot"
)

func (r Runtime) isApptainer() bool { return r == RuntimeApptainer || r == RuntimeSingularity }

// ParseConfig decodes a configuration file, YAML or JSON. It is strict: the error, of class
// InvalidInput, names all mistakes.
func ParseConfig(data []byte) (c Config, err error) {
	err = config.Decode(data, &c, c.validate)
	return c, config.Invalid("slurm", err)
}

// These go through shells and lists of Slurm as they are.
var (
	plainPath = regexp.MustCompile(`^[A-Za-z0-9_./+@-]+$`)
	plainName = regexp.MustCompile(`^[A-Za-z0-9_.,:@+-]*$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// validate returns all mistakes.
func (c *Config) validate() error {
	var wrong config.Checks
	check := wrong.That
	check(c.Cluster != "", "cluster: it is required: the name that distinguishes the jobs of this Kubernetes cluster from those of others")
	check(c.Root == "" || plainPath.MatchString(c.Root) && !slices.Contains(strings.Split(c.Root, "/"), ".."),
		"root: %q is not a path of letters, digits and the characters _./+@-", c.Root)
	for field, value := range map[string]string{"partition": c.Partition, "account": c.Account, "qos": c.QOS, "time": c.Time} {
		check(plainName.MatchString(value), "%s: %q has characters that Slurm does not take", field, value)
	}
	for _, flag := range c.Flags {
		check(strings.HasPrefix(flag, "--") && !strings.ContainsRune(flag, 0), "flags: %q is not a flag such as --nice=100", flag)
		check(!ownFlags[flagName(flag)], "flags: %s is the provider's own", flagName(flag))
	}
	for name, value := range c.Environment {
		check(envName.MatchString(name) && !strings.ContainsRune(value, 0), "environment: %q is not the name of a variable, or has a value that cannot be one", name)
	}
	check(slices.Contains([]Runtime{"", RuntimeNone, RuntimeApptainer, RuntimeSingularity, RuntimePodman, RuntimeEnroot}, c.Runtime),
		"runtime: %q is not none, apptainer, singularity, podman or enroot", c.Runtime)
	check(c.Runtime != RuntimeEnroot || !slices.ContainsFunc(c.RuntimeOptions, func(o string) bool { return o == "-c" || flagName(o) == "--conf" }),
		"runtimeOptions: with enroot --conf is the provider's own; hooks, mounts and variables of a site are in the directories of ENROOT_CONFIG_PATH")
	for _, dir := range c.HostPaths {
		check(path.IsAbs(dir) && path.Clean(dir) == dir, "hostPaths: %q is not an absolute path without superfluous elements", dir)
	}
	for name, q := range map[string]resource.Quantity{"cpu": c.CPU, "memory": c.Memory, "pods": c.Pods} {
		check(q.Sign() >= 0, "%s: %s is negative", name, q.String())
	}
	check(c.Refresh.Duration >= 0, "refresh: %s is negative", c.Refresh.Duration)
	check(c.CallsPerMinute >= 0, "callsPerMinute: %d is negative", c.CallsPerMinute)
	check(c.SSH == nil || c.SSH.Host != "" && !strings.HasPrefix(c.SSH.Host, "-"), "ssh.host: it is required")
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return wrong.Err()
}

// complete validates the configuration, and sets defaults.
func (c *Config) complete() error {
	if err := c.validate(); err != nil {
		return errdefs.InvalidInputf("slurm config: %w", err)
	}
	c.Root = strings.TrimRight(cmp.Or(c.Root, ".virtual-kubelet"), "/")
	c.Runtime = cmp.Or(c.Runtime, RuntimeNone)
	if c.RuntimeOptions == nil && c.Runtime.isApptainer() {
		c.RuntimeOptions = []string{"--compat"}
	}
	if c.Runtime.isApptainer() || c.Runtime == RuntimeEnroot {
		c.ImagePrefix = cmp.Or(c.ImagePrefix, "docker://")
	}
	if c.GRES == nil {
		c.GRES = map[corev1.ResourceName]string{"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
	}
	c.GRES = maps.Clone(c.GRES)
	if c.Pods.IsZero() {
		c.Pods = resource.MustParse("1000")
	}
	c.Refresh.Duration = cmp.Or(c.Refresh.Duration, 5*time.Second)
	c.CallsPerMinute = cmp.Or(c.CallsPerMinute, 1000)
	return nil
}
