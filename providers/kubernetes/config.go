package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// The apiVersion and kind of a configuration.
const (
	ConfigAPIVersion = "kubernetes.virtual-kubelet.io/v1"
	ConfigKind       = "RemoteCluster"
)

// Config is the provider's configuration file. README.md has a table of the fields.
type Config struct {
	// APIVersion and Kind are ConfigAPIVersion and ConfigKind.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Cluster is the name of the home cluster, a label of the remote objects. Home
	// clusters that share a remote cluster must have different names.
	Cluster string `json:"cluster"`
	// Remote configures the connection to the remote cluster.
	Remote Remote `json:"remote"`

	// Namespaces maps home namespaces to remote namespaces.
	Namespaces Namespaces `json:"namespaces,omitempty"`
	// Labels and Annotations select the labels and annotations that are copied to
	// remote pods. By default, labels with which controllers select their pods are not.
	Labels      *Filter `json:"labels,omitempty"`
	Annotations Filter  `json:"annotations,omitempty"`
	// Scheduling configures where in the remote cluster pods run.
	Scheduling Scheduling `json:"scheduling,omitempty"`

	AllowHostNamespaces bool              `json:"allowHostNamespaces,omitempty"`
	AllowHostPath       bool              `json:"allowHostPath,omitempty"`
	RuntimeClasses      map[string]string `json:"runtimeClasses,omitempty"`
	PriorityClasses     map[string]string `json:"priorityClasses,omitempty"`

	// StorageClasses are the names of remote storage classes by those of home classes
	// whose claims get remote volumes. An empty value is the remote default. Pods with
	// claims of other classes are refused.
	StorageClasses map[string]string `json:"storageClasses,omitempty"`
	// DeleteClaims allows remote claims to be deleted with home claims whose class has
	// the reclaim policy Delete. Otherwise they stay. Defaults to false.
	DeleteClaims bool `json:"deleteClaims,omitempty"`

	// Services copies the Services of namespaces that have pods on the node. Each such
	// namespace must have a remote namespace of its own. Defaults to false.
	Services bool `json:"services,omitempty"`

	// HomeAPIServer is the address at which remote pods find the home API server.
	HomeAPIServer APIServer `json:"homeAPIServer,omitempty"`
	// PodIPs maps IPs of remote pods to those shown at home.
	PodIPs []PodIPs `json:"podIPs,omitempty"`

	// Evicted is what happens to a pod whose remote pod is evicted, or deleted by
	// somebody else: Fail (the default) or Restart.
	Evicted Evicted `json:"evicted,omitempty"`
	// Unschedulable is what happens to a pod that the remote cluster does not schedule.
	// By default it stays pending.
	Unschedulable Unschedulable `json:"unschedulable,omitempty"`
	// Tokens selects the service account tokens that pods have in the remote cluster.
	// Defaults to TokensHome.
	Tokens Tokens `json:"tokens,omitempty"`
	// Unreachable is what happens to the node while the remote cluster cannot be
	// reached. By default it is not ready at once.
	Unreachable Unreachable `json:"unreachable,omitempty"`
	// Capacity is the capacity of the node.
	Capacity Capacity `json:"capacity,omitempty"`
	// Stats is the source of pod statistics. Defaults to StatsNone.
	Stats Stats `json:"stats,omitempty"`
	// Events records events of remote pods on the home pods. Defaults to true.
	Events *bool `json:"events,omitempty"`
}

// Remote configures the connection to the remote cluster: by a kubeconfig, as a pod of
// that cluster, or by address and token.
type Remote struct {
	// Kubeconfig is the path of a kubeconfig. Context is the context of it to use.
	// Defaults to the current context.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	// InCluster uses the service account of the pod that this process runs in, in the
	// remote cluster.
	InCluster bool `json:"inCluster,omitempty"`
	// Server is the URL of the API server, CAFile the path of its certificate
	// authority, TokenFile the path of a token. The token is read again when it
	// changes.
	Server    string `json:"server,omitempty"`
	CAFile    string `json:"caFile,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// QPS is the maximum number of requests per second. Zero leaves the limit to the
	// API server.
	QPS float32 `json:"qps,omitempty"`
}

// Namespaces maps home namespaces to remote namespaces.
type Namespaces struct {
	// Mapping defaults to MappingSame.
	Mapping Mapping           `json:"mapping,omitempty"`
	Prefix  string            `json:"prefix,omitempty"`
	Name    string            `json:"name,omitempty"`
	Map     map[string]string `json:"map,omitempty"`
	// Create creates remote namespaces that do not exist. They are not deleted.
	Create bool `json:"create,omitempty"`
}

// Mapping is how home namespaces are mapped to remote namespaces.
type Mapping = translate.Mapping

// The mappings.
const (
	// MappingSame maps a namespace to the remote one of the same name.
	MappingSame = translate.Same
	// MappingPrefix adds Namespaces.Prefix to the name.
	MappingPrefix = translate.Prefixed
	// MappingFixed maps all namespaces to Namespaces.Name.
	MappingFixed = translate.Fixed
	// MappingMap looks namespaces up in Namespaces.Map, and refuses those that it lacks.
	MappingMap = translate.Mapped
)

// Filter selects the keys of labels or annotations that are copied.
type Filter = translate.Filter

// Scheduling sets the fields of a remote pod that a scheduler reads.
type Scheduling = translate.Scheduling

// APIServer is the address of an API server.
type APIServer = translate.APIServer

// PodIPs maps the addresses of a remote CIDR to those of a home CIDR of the same size.
type PodIPs struct {
	Remote string `json:"remote"`
	Home   string `json:"home"`
}

// Evicted is a policy for pods whose remote pod is evicted or deleted.
type Evicted string

// The policies.
const (
	Fail    Evicted = "fail"
	Restart Evicted = "restart"
)

// Unschedulable is what happens to a pod that the remote cluster does not schedule.
type Unschedulable struct {
	// After is how long a remote pod has to be without a node, as observed by this
	// process. Required with FailUnscheduled, not allowed otherwise.
	After metav1.Duration `json:"after,omitempty"`
	// Then is KeepUnscheduled (the default) or FailUnscheduled.
	Then UnschedulablePolicy `json:"then,omitempty"`
}

// UnschedulablePolicy is a policy for pods that are not scheduled.
type UnschedulablePolicy string

// The policies.
const (
	// KeepUnscheduled waits for a node.
	KeepUnscheduled UnschedulablePolicy = "keep"
	// FailUnscheduled deletes the remote pod and fails the home pod, so that its
	// controller creates another one.
	FailUnscheduled UnschedulablePolicy = "fail"
)

func (u *Unschedulable) check() error {
	if err := choose("unschedulable.then", &u.Then, KeepUnscheduled, FailUnscheduled); err != nil {
		return err
	}
	switch after := u.After.Duration; {
	case u.Then == FailUnscheduled && after < time.Second:
		return fmt.Errorf("unschedulable.after: %v is too short for then: fail: set at least a second, such as 10m", after)
	case u.Then == KeepUnscheduled && after != 0:
		return errors.New("unschedulable.after requires then: fail")
	}
	return nil
}

// Unreachable is what happens to the node while the remote cluster cannot be reached.
type Unreachable struct {
	// KeepReady is how long the node stays Ready, with a taint that keeps new pods
	// away. Defaults to 0.
	KeepReady metav1.Duration `json:"keepReady,omitempty"`
}

func (u *Unreachable) check() error {
	if u.KeepReady.Duration < 0 {
		return fmt.Errorf("unreachable.keepReady: %v is negative", u.KeepReady.Duration)
	}
	return nil
}

// Tokens selects service account tokens.
type Tokens string

// The sources.
const (
	// TokensHome are tokens of the home cluster for the pod's service account.
	TokensHome Tokens = "home"
	// TokensDisabled means no tokens. Pods with a token volume of their own are
	// refused.
	TokensDisabled Tokens = "disabled"
)

// Stats is a source of statistics.
type Stats string

// The sources.
const (
	// StatsNone means no statistics: requests are answered with 501.
	StatsNone Stats = "none"
	// StatsKubelets requests them from the kubelets, through the remote API server.
	StatsKubelets Stats = "kubelets"
	// StatsMetrics requests them from the remote cluster's metrics API.
	StatsMetrics Stats = "metrics"
)

// CapacitySource is the source of a node's capacity.
type CapacitySource string

// The sources.
const (
	// CapacityFixed is Capacity.Resources.
	CapacityFixed CapacitySource = "fixed"
	// CapacityNodes is the sum of what the remote nodes can allocate, less the requests
	// of pods that this home does not own.
	CapacityNodes CapacitySource = "nodes"
	// CapacityQuota is the smallest of the resource quotas of the one remote namespace.
	CapacityQuota CapacitySource = "quota"
)

// Capacity configures the capacity of the node.
type Capacity struct {
	// Source defaults to CapacityFixed.
	Source CapacitySource `json:"source,omitempty"`
	// Resources default to 20 CPUs, 100Gi of memory and 110 pods. Where the
	// source is another, they are for what that does not know.
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// NodeSelector selects remote nodes. Defaults to all.
	NodeSelector string `json:"nodeSelector,omitempty"`
	// Interval is how often the capacity is updated. Defaults to 30s.
	Interval metav1.Duration `json:"interval,omitempty"`
}

const defaultCapacityInterval = 30 * time.Second

// ParseConfig decodes a configuration in YAML or JSON. It is strict: the error, of class
// InvalidInput, names all unknown fields and invalid values.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := (config.Decoder{Loose: true}).Decode(data, &cfg, cfg.complete); err != nil {
		return Config{}, errdefs.InvalidInputf("kubernetes config: %w", err)
	}
	return cfg, nil
}

// complete sets defaults and validates the rest.
func (c *Config) complete() error {
	if c.APIVersion != ConfigAPIVersion || c.Kind != ConfigKind {
		return fmt.Errorf("apiVersion and kind are %q and %q: write %s and %s", c.APIVersion, c.Kind, ConfigAPIVersion, ConfigKind)
	}
	if c.Labels == nil {
		c.Labels = &Filter{Exclude: []string{"pod-template-hash", "controller-revision-hash", "controller-uid", "batch.kubernetes.io/controller-uid"}}
	}
	if c.Capacity.Interval.Duration == 0 {
		c.Capacity.Interval.Duration = defaultCapacityInterval
	}
	defaults := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("20"), corev1.ResourceMemory: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	if c.Capacity.Resources == nil {
		c.Capacity.Resources = corev1.ResourceList{}
	}
	for name, q := range defaults {
		if _, ok := c.Capacity.Resources[name]; !ok {
			c.Capacity.Resources[name] = q
		}
	}
	_, rangesErr := c.ranges()
	errs := []error{
		c.cluster(), c.Remote.check(), c.Namespaces.check(), rangesErr, c.claims(), c.services(),
		c.Unschedulable.check(), c.Unreachable.check(),
		choose("evicted", &c.Evicted, Fail, Restart),
		choose("tokens", &c.Tokens, TokensHome, TokensDisabled),
		choose("stats", &c.Stats, StatsNone, StatsKubelets, StatsMetrics),
		choose("capacity.source", &c.Capacity.Source, CapacityFixed, CapacityNodes, CapacityQuota),
	}
	for name, q := range c.Capacity.Resources {
		if q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("capacity.resources.%s: %s is negative", name, q.String()))
		}
	}
	if _, err := labels.Parse(c.Capacity.NodeSelector); err != nil {
		errs = append(errs, fmt.Errorf("capacity.nodeSelector: %w", err))
	}
	if c.Capacity.Interval.Duration < time.Second {
		errs = append(errs, fmt.Errorf("capacity.interval: %v is less than a second", c.Capacity.Interval.Duration))
	}
	if c.Capacity.Source == CapacityQuota && c.Namespaces.Mapping != MappingFixed {
		errs = append(errs, errors.New("capacity.source: quota is of one namespace, and needs namespaces.mapping: fixed"))
	}
	return errors.Join(errs...)
}

func (c *Config) cluster() error {
	if c.Cluster == "" {
		return errors.New("cluster: required: the name of the home cluster, with which its remote objects are labelled")
	}
	if problems := validation.IsValidLabelValue(c.Cluster); len(problems) > 0 {
		return fmt.Errorf("cluster: %q cannot be the value of a label: %s", c.Cluster, problems[0])
	}
	return nil
}

func (c *Config) claims() error {
	if c.DeleteClaims && len(c.StorageClasses) == 0 {
		return errors.New("deleteClaims requires storageClasses")
	}
	return nil
}

func (c *Config) services() error {
	if !c.Services {
		return nil
	}
	if c.Namespaces.Mapping == MappingFixed {
		return errors.New("services: with namespaces.mapping: fixed, Services of several namespaces would have the same name")
	}
	seen := map[string]string{}
	for _, namespace := range slices.Sorted(maps.Keys(c.Namespaces.Map)) {
		remote := c.Namespaces.Map[namespace]
		if other, ok := seen[remote]; ok {
			return fmt.Errorf("services: namespaces.map has %s for both %s and %s, whose Services could have the same name", remote, other, namespace)
		}
		seen[remote] = namespace
	}
	return nil
}

// choose checks that a field has one of some values, and sets the first by default.
func choose[T ~string](field string, value *T, values ...T) error {
	if *value == "" {
		*value = values[0]
	}
	if !slices.Contains(values, *value) {
		return fmt.Errorf("%s: %q is not one of %v", field, *value, values)
	}
	return nil
}

func (n *Namespaces) check() error {
	if err := choose("namespaces.mapping", &n.Mapping, MappingSame, MappingPrefix, MappingFixed, MappingMap); err != nil {
		return err
	}
	for _, c := range []struct {
		field   string
		of      Mapping
		present bool
	}{
		{"prefix", MappingPrefix, n.Prefix != ""},
		{"name", MappingFixed, n.Name != ""},
		{"map", MappingMap, len(n.Map) > 0},
	} {
		if c.present != (n.Mapping == c.of) {
			return fmt.Errorf("namespaces.mapping is %s: namespaces.%s belongs to %s, and to no other mapping", n.Mapping, c.field, c.of)
		}
	}
	names := []string{n.Name}
	if n.Prefix != "" {
		names = append(names, n.Prefix+"x")
	}
	for _, name := range n.Map {
		names = append(names, name)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("namespaces: %q cannot be the name of a namespace: %s", name, problems[0])
		}
	}
	return nil
}

// ranges parses PodIPs.
func (c *Config) ranges() ([]translate.Range, error) {
	var all []translate.Range
	for i, p := range c.PodIPs {
		remote, err := netip.ParsePrefix(p.Remote)
		if err != nil {
			return nil, fmt.Errorf("podIPs[%d].remote: %w", i, err)
		}
		home, err := netip.ParsePrefix(p.Home)
		if err != nil {
			return nil, fmt.Errorf("podIPs[%d].home: %w", i, err)
		}
		if remote.Addr().BitLen() != home.Addr().BitLen() || remote.Bits() != home.Bits() {
			return nil, fmt.Errorf("podIPs[%d]: %s and %s are of different sizes", i, p.Remote, p.Home)
		}
		all = append(all, translate.Range{Remote: remote.Masked(), Home: home.Masked()})
	}
	return all, nil
}

// translation returns the options to translate the pods of a node. c must be complete.
func (c *Config) translation(nodeName string) (*translate.Options, error) {
	ranges, err := c.ranges()
	if err != nil {
		return nil, err
	}
	return &translate.Options{
		Home:                translate.Home{Cluster: c.Cluster, Node: nodeName},
		Namespaces:          translate.Namespaces{Mapping: c.Namespaces.Mapping, Prefix: c.Namespaces.Prefix, Name: c.Namespaces.Name, Map: c.Namespaces.Map},
		Labels:              *c.Labels,
		Annotations:         c.Annotations,
		Scheduling:          c.Scheduling,
		AllowHostNamespaces: c.AllowHostNamespaces,
		AllowHostPath:       c.AllowHostPath,
		RuntimeClasses:      c.RuntimeClasses,
		PriorityClasses:     c.PriorityClasses,
		NoTokens:            c.Tokens == TokensDisabled,
		APIServer:           c.HomeAPIServer,
		PodIPs:              ranges,
	}, nil
}
