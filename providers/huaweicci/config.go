package huaweicci

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// Secret is a string that is never printed.
type Secret = config.Secret

// API is a generation of the service.
type API string

// The generations.
const (
	// APIv1 is CCI 1, at /api/v1.
	APIv1 API = "v1"
	// APIv2 is CCI 2.0, at /apis/cci/v2.
	APIv2 API = "v2"
)

// Config is the provider's configuration. README.md has a table of the fields. The first
// seven are those of an older provider of the same name.
type Config struct {
	// Project is the namespace in CCI. Defaults to default.
	Project string `json:"Project,omitempty"`
	// Region defaults to cn-north-1, as does southchina, a name of the older provider, which
	// had all pods there.
	Region          string `json:"Region,omitempty"`
	Service         string `json:"Service,omitempty"`         // which signatures no longer contain
	OperatingSystem string `json:"OperatingSystem,omitempty"` // Linux
	// CPU, Memory and Pods are the capacity of the node. They default to 20, 100Gi and 20.
	CPU    string `json:"CPU,omitempty"`
	Memory string `json:"Memory,omitempty"`
	Pods   string `json:"Pods,omitempty"`

	// API defaults to APIv1, which has the pods of the older provider.
	API API `json:"API,omitempty"`
	// Cluster is the name of this cluster, a label of all objects. Defaults to kubernetes.
	Cluster string `json:"Cluster,omitempty"`
	// Endpoint defaults to https://cci.REGION.myhuaweicloud.com. CAFile has certificate
	// authorities in place of those of the system, for IAM, too.
	Endpoint string `json:"Endpoint,omitempty"`
	CAFile   string `json:"CAFile,omitempty"`
	// ProjectID is the ID of the project in IAM.
	ProjectID string `json:"ProjectID,omitempty"`
	// IAM has the user for tokens, instead of an access key.
	IAM IAM `json:"IAM,omitempty"`
	// InstanceType is for pods without AnnotationInstanceType. Defaults to general-computing.
	InstanceType string `json:"InstanceType,omitempty"`
	// Size is for pods of CCI 2.0 without any requests, limits or AnnotationSize. Defaults to
	// 0.50_1.0.
	Size string `json:"Size,omitempty"`
	// Network lets the provider create the namespace, and its network.
	Network *Network `json:"Network,omitempty"`
	// Kubernetes has settings of provider kubernetes, as far as they fit a service.
	Kubernetes kubernetes.Config `json:"Kubernetes,omitempty"`

	keys keys
}

// IAM is a user of the identity service.
type IAM struct {
	User     string `json:"User,omitempty"`
	Domain   string `json:"Domain,omitempty"` // the account
	Password Secret `json:"Password,omitempty"`
	// Project is the name of the project. Defaults to the region.
	Project string `json:"Project,omitempty"`
	// Endpoint defaults to https://iam.REGION.myhuaweicloud.com.
	Endpoint string `json:"Endpoint,omitempty"`
}

// Network is the network of a namespace. VPC, NetworkID and CIDR are for CCI 1.
type Network struct {
	Name          string `json:"Name,omitempty"` // defaults to virtual-kubelet
	SubnetID      string `json:"SubnetID"`
	SecurityGroup string `json:"SecurityGroup"`
	DomainID      string `json:"DomainID"` // the account
	VPC           string `json:"VPC,omitempty"`
	NetworkID     string `json:"NetworkID,omitempty"`
	CIDR          string `json:"CIDR,omitempty"`
	Zone          string `json:"Zone,omitempty"`
}

// ParseConfig decodes a configuration file: YAML or JSON, or TOML with a setting a line. The
// error, of class InvalidInput, names all mistakes.
func ParseConfig(data []byte) (c Config, err error) {
	if err := (config.Decoder{Loose: true}).Decode(config.FromFlatTOML(data), &c, nil); err != nil {
		return c, errdefs.InvalidInputf("huaweicci config: %w", err)
	}
	return c, nil
}

// Merge takes the access key and the password from environment variables, as getenv returns
// them.
func (c *Config) Merge(getenv func(string) string) {
	c.keys = keys{
		access:        cmp.Or(getenv("CCI_APP_KEY"), getenv("CCI_APP_KEP")),
		secret:        getenv("CCI_APP_SECRET"),
		securityToken: getenv("CCI_SECURITY_TOKEN"),
	}
	c.IAM.Password = cmp.Or(Secret(getenv("CCI_IAM_PASSWORD")), c.IAM.Password)
}

// Check returns an error of class InvalidInput that names what is wrong, apart from
// credentials, which are in the environment.
func (c Config) Check() error { return c.complete(nil) }

// complete sets defaults, and returns an error of class InvalidInput that names what is
// missing or wrong. access is what is wrong with the credentials.
func (c *Config) complete(access error) error {
	c.Project = cmp.Or(c.Project, "default")
	if c.Region == "" || c.Region == "southchina" {
		c.Region = "cn-north-1"
	}
	c.API = cmp.Or(c.API, APIv1)
	c.Endpoint = strings.TrimSuffix(cmp.Or(c.Endpoint, "https://cci."+c.Region+".myhuaweicloud.com"), "/")
	c.IAM.Endpoint = strings.TrimSuffix(cmp.Or(c.IAM.Endpoint, "https://iam."+c.Region+".myhuaweicloud.com"), "/")
	c.IAM.Project = cmp.Or(c.IAM.Project, c.Region)
	c.InstanceType = cmp.Or(c.InstanceType, "general-computing")
	c.Size = cmp.Or(c.Size, "0.50_1.0")
	_, sizeErr := parseSize(c.Size)
	errs := []error{access, c.checkNetwork(), c.checkKubernetes()}
	if sizeErr != nil {
		errs = append(errs, fmt.Errorf("field Size: %w", sizeErr))
	}
	if c.API != APIv1 && c.API != APIv2 {
		errs = append(errs, fmt.Errorf("API: %q is not one of v1 and v2", c.API))
	}
	if c.OperatingSystem != "" && !strings.EqualFold(c.OperatingSystem, "Linux") {
		errs = append(errs, fmt.Errorf("OperatingSystem: %q: CCI runs Linux only", c.OperatingSystem))
	}
	if problems := validation.IsDNS1123Label(c.Project); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("field Project: %q cannot be the name of a namespace: %s", c.Project, problems[0]))
	}
	for name, endpoint := range map[string]string{"Endpoint": c.Endpoint, "IAM.Endpoint": c.IAM.Endpoint} {
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
			errs = append(errs, fmt.Errorf("%s: %q is not https:// and a host", name, endpoint))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errdefs.AsInvalidInput(fmt.Errorf("huaweicci config: %w", err))
	}
	return nil
}

func (c *Config) checkAccess() error {
	withKeys, withUser := c.keys != (keys{}), c.IAM.User != ""
	switch {
	case withKeys == withUser:
		return errors.New("set either the environment variables CCI_APP_KEY and CCI_APP_SECRET, or IAM.User, with its password in CCI_IAM_PASSWORD")
	case withKeys && (c.keys.access == "" || c.keys.secret == ""):
		return errors.New("an access key has two parts: set both CCI_APP_KEY and CCI_APP_SECRET")
	case withUser && (c.IAM.Domain == "" || c.IAM.Password == ""):
		return errors.New("IAM: User needs Domain, the name of the account, and a password in CCI_IAM_PASSWORD")
	}
	return nil
}

func (c *Config) checkNetwork() error {
	n := c.Network
	if n == nil {
		return nil
	}
	n.Name = cmp.Or(n.Name, "virtual-kubelet")
	if n.SubnetID == "" || n.SecurityGroup == "" || n.DomainID == "" || c.ProjectID == "" {
		return errors.New("Network: set SubnetID, SecurityGroup, DomainID, and ProjectID beside Network")
	}
	if c.API == APIv1 && (n.VPC == "" || n.NetworkID == "" || n.CIDR == "") {
		return errors.New("Network: CCI 1 needs VPC, NetworkID and CIDR, too")
	}
	return nil
}

// checkKubernetes sets what the settings above say of provider kubernetes.
func (c *Config) checkKubernetes() error {
	k := &c.Kubernetes
	if k.Cluster != "" || k.Namespaces.Name != "" || k.Namespaces.Mapping != "" || k.Remote != (kubernetes.Remote{}) {
		return errors.New("field Kubernetes: cluster, remote and namespaces follow from Cluster, Endpoint and Project")
	}
	k.Cluster, k.Namespaces.Name = cmp.Or(c.Cluster, "kubernetes"), c.Project
	k.Stats = cmp.Or(k.Stats, kubernetes.StatsMetrics)
	k.Capacity.Resources = maps.Clone(k.Capacity.Resources)
	if k.Capacity.Resources == nil {
		k.Capacity.Resources = corev1.ResourceList{}
	}
	for _, s := range []struct {
		field string
		name  corev1.ResourceName
		text  string
	}{
		{"CPU", corev1.ResourceCPU, cmp.Or(c.CPU, "20")},
		{"Memory", corev1.ResourceMemory, cmp.Or(c.Memory, "100Gi")},
		{"Pods", corev1.ResourcePods, cmp.Or(c.Pods, "20")},
	} {
		if _, given := k.Capacity.Resources[s.name]; given {
			return fmt.Errorf("field Kubernetes: capacity.resources: %s follows from %s", s.name, s.field)
		}
		quantity, err := resource.ParseQuantity(s.text)
		if err != nil {
			return fmt.Errorf("%s: %q is no quantity", s.field, s.text)
		}
		k.Capacity.Resources[s.name] = quantity
	}
	completed, err := kubernetes.CompleteForService(*k)
	if err != nil {
		return fmt.Errorf("field Kubernetes: %w", err)
	}
	*k = completed
	return nil
}
