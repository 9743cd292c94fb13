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
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// The type of a configuration.
const (
	ConfigAPIVersion = "kubernetes.virtual-kubelet.io/v1"
	ConfigKind       = "RemoteCluster"
)

// Config is the provider's configuration, as its file has it. README.md has the
// fields in a table.
type Config struct {
	// APIVersion and Kind are ConfigAPIVersion and ConfigKind.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Cluster is the name of the home cluster, with which remote objects are
	// labelled. No two clusters that use the same remote one may have the same.
	Cluster string `json:"cluster"`
	// Remote says how to reach the remote cluster.
	Remote Remote `json:"remote"`

	// Namespaces says which remote namespace stands for one at home.
	Namespaces Namespaces `json:"namespaces,omitempty"`
	// Labels and Annotations say which of a pod's go with it. Without, labels
	// by which controllers find their pods do not.
	Labels      *translate.Filter `json:"labels,omitempty"`
	Annotations translate.Filter  `json:"annotations,omitempty"`
	// Scheduling is what decides where in the remote cluster pods run.
	Scheduling translate.Scheduling `json:"scheduling,omitempty"`

	AllowHostNamespaces bool              `json:"allowHostNamespaces,omitempty"`
	AllowHostPath       bool              `json:"allowHostPath,omitempty"`
	RuntimeClasses      map[string]string `json:"runtimeClasses,omitempty"`
	PriorityClasses     map[string]string `json:"priorityClasses,omitempty"`

	// StorageClasses are the remote names of storage classes, whose claims get
	// volumes there; an empty one stands for the remote default. Pods with
	// claims of others are refused.
	StorageClasses map[string]string `json:"storageClasses,omitempty"`
	// DeleteClaims lets remote claims be deleted with those at home whose class
	// has the reclaim policy Delete. Without, they stay. Defaults to false.
	DeleteClaims bool `json:"deleteClaims,omitempty"`

	// Services reflects the Services of namespaces that pods are in. Each of
	// these has to have a remote namespace of its own. Defaults to false.
	Services bool `json:"services,omitempty"`

	// HomeAPIServer is where remote pods find the home cluster's API server.
	HomeAPIServer translate.APIServer `json:"homeAPIServer,omitempty"`
	// PodIPs says how addresses of remote pods look at home.
	PodIPs []PodIPs `json:"podIPs,omitempty"`

	// Evicted is what becomes of a pod whose remote pod was evicted, or deleted
	// by somebody else: Fail, which is the default, or Restart.
	Evicted Evicted `json:"evicted,omitempty"`
	// Unschedulable is what becomes of a pod that the remote cluster does not
	// schedule. By default it waits.
	Unschedulable Unschedulable `json:"unschedulable,omitempty"`
	// Tokens is which tokens of service accounts pods have in the remote cluster.
	// Defaults to TokensHome.
	Tokens Tokens `json:"tokens,omitempty"`
	// Unreachable is what becomes of the node while the remote cluster cannot be
	// reached. By default it is not ready at once.
	Unreachable Unreachable `json:"unreachable,omitempty"`
	// Capacity is what the node offers.
	Capacity Capacity `json:"capacity,omitempty"`
	// Stats is where statistics of pods come from. Defaults to StatsNone.
	Stats Stats `json:"stats,omitempty"`
	// Events mirrors events of remote pods to the pods at home. Defaults to
	// true.
	Events *bool `json:"events,omitempty"`
}

// Remote says how to reach the remote cluster: by a kubeconfig, as a pod of it, or
// by address and token.
type Remote struct {
	// Kubeconfig is the path of a kubeconfig; Context is the one of it to use,
	// by default the current one.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	// InCluster is for a provider that runs in the remote cluster.
	InCluster bool `json:"inCluster,omitempty"`
	// Server is the URL of the API server, CAFile the path of its certificate
	// authority, TokenFile that of a token, which is read again as it changes.
	Server    string `json:"server,omitempty"`
	CAFile    string `json:"caFile,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// QPS limits requests a second; zero means that only the API server does.
	QPS float32 `json:"qps,omitempty"`
}

// Namespaces says which remote namespace stands for one at home.
type Namespaces struct {
	// Mapping is same (the default), prefix, fixed or map.
	Mapping translate.Mapping `json:"mapping,omitempty"`
	Prefix  string            `json:"prefix,omitempty"`
	Name    string            `json:"name,omitempty"`
	Map     map[string]string `json:"map,omitempty"`
	// Create makes remote namespaces that there are not. They stay.
	Create bool `json:"create,omitempty"`
}

// PodIPs maps the addresses of a CIDR of the remote cluster to those of one at
// home, of the same size.
type PodIPs struct {
	Remote string `json:"remote"`
	Home   string `json:"home"`
}

// Evicted is a policy.
type Evicted string

// The policies.
const (
	Fail    Evicted = "fail"
	Restart Evicted = "restart"
)

// Unschedulable is what becomes of a pod that the remote cluster does not schedule.
type Unschedulable struct {
	// After is how long a remote pod has to be without a node, as this process sees
	// it. Required with FailUnscheduled, and nothing without.
	After metav1.Duration `json:"after,omitempty"`
	// Then is what becomes of it: KeepUnscheduled, which is the default, or
	// FailUnscheduled.
	Then UnschedulablePolicy `json:"then,omitempty"`
}

// UnschedulablePolicy is what becomes of a pod that is not scheduled.
type UnschedulablePolicy string

// The policies.
const (
	// KeepUnscheduled: it waits for a node.
	KeepUnscheduled UnschedulablePolicy = "keep"
	// FailUnscheduled: the remote pod is deleted and the one at home fails, for its
	// controller to make another.
	FailUnscheduled UnschedulablePolicy = "fail"
)

func (u *Unschedulable) check() error {
	if err := choose("unschedulable.then", &u.Then, KeepUnscheduled, FailUnscheduled); err != nil {
		return err
	}
	switch after := u.After.Duration; {
	case u.Then == FailUnscheduled && after < time.Second:
		return fmt.Errorf("unschedulable.after: then: fail needs a time of at least a second, such as 10m, not %v", after)
	case u.Then == KeepUnscheduled && after != 0:
		return errors.New("unschedulable.after belongs to then: fail")
	}
	return nil
}

// Unreachable is what becomes of the node while the remote cluster cannot be reached.
type Unreachable struct {
	// KeepReady is how long it stays Ready, with a taint that keeps new pods away.
	// Defaults to 0.
	KeepReady metav1.Duration `json:"keepReady,omitempty"`
}

func (u *Unreachable) check() error {
	if u.KeepReady.Duration < 0 {
		return fmt.Errorf("unreachable.keepReady: %v is negative", u.KeepReady.Duration)
	}
	return nil
}

// Tokens is a source of tokens of service accounts.
type Tokens string

// The sources.
const (
	// TokensHome: the home cluster's, for the pod's service account.
	TokensHome Tokens = "home"
	// TokensDisabled: none. Pods that ask for one by a volume of their own are
	// refused.
	TokensDisabled Tokens = "disabled"
)

// Stats is a source of statistics.
type Stats string

// The sources.
const (
	// StatsNone: there are none, which is answered with 501.
	StatsNone Stats = "none"
	// StatsKubelets asks the kubelets, through the remote API server.
	StatsKubelets Stats = "kubelets"
	// StatsMetrics asks the remote cluster's metrics API.
	StatsMetrics Stats = "metrics"
)

// CapacitySource is where a node's capacity comes from.
type CapacitySource string

// The sources.
const (
	// CapacityFixed is Capacity.Resources.
	CapacityFixed CapacitySource = "fixed"
	// CapacityNodes is what the remote nodes can allocate, without what pods
	// that are not ours request.
	CapacityNodes CapacitySource = "nodes"
	// CapacityQuota is the least that the resource quotas of the one remote
	// namespace allow.
	CapacityQuota CapacitySource = "quota"
)

// Capacity is what the node offers.
type Capacity struct {
	// Source defaults to CapacityFixed.
	Source CapacitySource `json:"source,omitempty"`
	// Resources default to 20 CPUs, 100Gi of memory and 110 pods. Where the
	// source is another, they are for what that does not know.
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// NodeSelector chooses among the remote nodes. Defaults to all.
	NodeSelector string `json:"nodeSelector,omitempty"`
	// Interval is how often to look. Defaults to 30 s.
	Interval metav1.Duration `json:"interval,omitempty"`
}

const defaultCapacityInterval = 30 * time.Second

// ParseConfig reads a configuration, in YAML or JSON. It is strict: a field that
// there is not, or a value that is none, is an error of class InvalidInput.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	err := yaml.UnmarshalStrict(data, &cfg)
	if err == nil {
		err = cfg.complete()
	}
	if err != nil {
		return Config{}, errdefs.InvalidInputf("kubernetes config: %w", err)
	}
	return cfg, nil
}

// complete fills in the defaults, and names all that is wrong with the rest.
func (c *Config) complete() error {
	if c.APIVersion != ConfigAPIVersion || c.Kind != ConfigKind {
		return fmt.Errorf("apiVersion and kind are %q and %q: write %s and %s", c.APIVersion, c.Kind, ConfigAPIVersion, ConfigKind)
	}
	if c.Labels == nil {
		c.Labels = &translate.Filter{Exclude: []string{"pod-template-hash", "controller-revision-hash", "controller-uid", "batch.kubernetes.io/controller-uid"}}
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
	if c.Capacity.Source == CapacityQuota && c.Namespaces.Mapping != translate.Fixed {
		errs = append(errs, errors.New("capacity.source: quota is of one namespace, and needs namespaces.mapping: fixed"))
	}
	return errors.Join(errs...)
}

func (c *Config) cluster() error {
	if c.Cluster == "" {
		return errors.New("cluster: give the home cluster a name, which labels what it has in the remote cluster")
	}
	if problems := validation.IsValidLabelValue(c.Cluster); len(problems) > 0 {
		return fmt.Errorf("cluster: %q cannot be the value of a label: %s", c.Cluster, problems[0])
	}
	return nil
}

func (c *Config) claims() error {
	if c.DeleteClaims && len(c.StorageClasses) == 0 {
		return errors.New("deleteClaims belongs to storageClasses, without which there are no claims")
	}
	return nil
}

func (c *Config) services() error {
	if !c.Services {
		return nil
	}
	if c.Namespaces.Mapping == translate.Fixed {
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

// choose checks that a field has one of some values, the first by default.
func choose[T ~string](field string, value *T, values ...T) error {
	if *value == "" {
		*value = values[0]
	}
	if !slices.Contains(values, *value) {
		return fmt.Errorf("%s: %q is none of %v", field, *value, values)
	}
	return nil
}

func (n *Namespaces) check() error {
	if err := choose("namespaces.mapping", &n.Mapping, translate.Same, translate.Prefixed, translate.Fixed, translate.Mapped); err != nil {
		return err
	}
	for _, c := range []struct {
		field   string
		of      translate.Mapping
		present bool
	}{
		{"prefix", translate.Prefixed, n.Prefix != ""},
		{"name", translate.Fixed, n.Name != ""},
		{"map", translate.Mapped, len(n.Map) > 0},
	} {
		if c.present != (n.Mapping == c.of) {
			return fmt.Errorf("namespaces.mapping is %s: namespaces.%s belongs to %s, and to no other", n.Mapping, c.field, c.of)
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

// ranges returns PodIPs, parsed.
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

// translation is how pods are translated, for a node. c is complete.
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
