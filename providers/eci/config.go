package eci

import (
	"cmp"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Config configures where container groups are created, and what the node offers.
type Config struct {
	// ClusterName distinguishes the container groups of this cluster from those of
	// others in the same account: two clusters with the same name, and nodes of the
	// same name, would have the same pods. Required.
	ClusterName string `json:"clusterName"`
	// Region is the region, such as cn-hangzhou. Required.
	Region string `json:"region"`
	// AccessKey and SecretKey are the credentials, and SecurityToken that of temporary
	// ones, of STS. Without them those of a role are used: RoleARN, or else ECSRole.
	AccessKey     Secret `json:"accessKey"`
	SecretKey     Secret `json:"secretKey"`
	SecurityToken Secret `json:"securityToken"`
	// RoleARN is a RAM role that the token in OIDCTokenFile, of the OIDC provider
	// OIDCProviderARN, is exchanged for: all three, or none.
	RoleARN         string `json:"roleARN"`
	OIDCProviderARN string `json:"oidcProviderARN"`
	OIDCTokenFile   string `json:"oidcTokenFile"`
	// ECSRole is the RAM role of the ECS instance that this program runs on.
	ECSRole string `json:"ecsRole"`
	// SecurityGroup is the ID of the security group of container groups. Required.
	SecurityGroup string `json:"secureGroup"`
	// VSwitch are the IDs of the vSwitches to try, one or more, separated by commas.
	// Each determines a zone. Required.
	VSwitch string `json:"vSwitch"`

	// Zone limits container groups to one zone of the region. Defaults to those
	// of the vSwitches.
	Zone string `json:"zone"`
	// RAMRole is the RAM role of container groups. Defaults to none.
	RAMRole string `json:"ramRole"`
	// ClusterDNS are the addresses of the cluster's DNS service, which pods have to be able
	// to reach, and ClusterDomain is the cluster's domain, such as cluster.local. Without
	// addresses names are resolved by the VPC.
	ClusterDNS    []string `json:"clusterDNS"`
	ClusterDomain string   `json:"clusterDomain"`
	// UpdateFiles: files of ConfigMaps, Secrets, downwardAPI volumes and tokens are updated
	// in pods that run, unless their restartPolicy is Never. Each update puts the container
	// group into the state Updating. Without it they stay as they were created.
	UpdateFiles bool `json:"updateFiles"`
	// Endpoint is the URL of another endpoint of the ECI API, such as
	// https://eci-vpc.cn-hangzhou.aliyuncs.com. Defaults to the region's.
	Endpoint string `json:"endpoint"`
	// OperatingSystem is Linux or Windows. Defaults to the node's.
	OperatingSystem string `json:"operatingSystem"`

	// CPU, Memory and Pods are the capacity of the node. The actual limits are the
	// quotas of the account. Default to 1000, 4Ti and 1000.
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	Pods   resource.Quantity `json:"pods"`
	// GPU is the node's capacity of nvidia.com/gpu. Defaults to none: the scheduler
	// does not place pods that request some on the node.
	GPU resource.Quantity `json:"gpu"`

	// CacheFor is the maximum age of a list that is reused. Defaults to two seconds.
	CacheFor metav1.Duration `json:"cacheFor"`
	// Budget keeps the calls within the quotas of the account. Nodes of one process that
	// use the same account should share one. Defaults to NewBudget.
	Budget *podgroup.Budget `json:"-"`
}

// ParseConfig decodes a configuration file: TOML with a setting a line, YAML or JSON. It is
// strict: the error, of class InvalidInput, names all unknown fields and invalid values, and
// contains no value that may be a secret. Empty data is an empty configuration; Merge and
// Complete do the rest.
func ParseConfig(data []byte) (c Config, err error) {
	err = (config.Decoder{Loose: true}).Decode(config.FromFlatTOML(data), &c, nil)
	return c, config.Invalid("eci", err)
}

// The environment variables that Merge reads.
const (
	EnvClusterName   = "ECI_CLUSTER_NAME"
	EnvRegion        = "ECI_REGION"
	EnvAccessKey     = "ECI_ACCESS_KEY"
	EnvSecretKey     = "ECI_SECRET_KEY"
	EnvSecurityGroup = "ECI_SECURITY_GROUP"
	EnvVSwitch       = "ECI_VSWITCH"
	EnvQuotaCPU      = "ECI_QUOTA_CPU"
	EnvQuotaMemory   = "ECI_QUOTA_MEMORY"
	EnvQuotaPod      = "ECI_QUOTA_POD"
	EnvSecurityToken = "ECI_SECURITY_TOKEN"
	EnvECSRole       = "ECI_ECS_ROLE"
	EnvUpdateFiles   = "ECI_UPDATE_FILES"
	EnvClusterDNS    = "ECI_CLUSTER_DNS"

	// What clusters of the service set for a pod with a role.
	EnvRoleARN         = "ALIBABA_CLOUD_ROLE_ARN"
	EnvOIDCProviderARN = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN"
	EnvOIDCTokenFile   = "ALIBABA_CLOUD_OIDC_TOKEN_FILE"
)

// required returns the settings without a default, with the environment variable and
// the field of the file that set each.
func (c *Config) required() []struct{ env, field, value string } {
	type setting = struct{ env, field, value string }
	all := []setting{{EnvClusterName, "ClusterName", c.ClusterName}, {EnvRegion, "Region", c.Region}}
	oidc := c.RoleARN != "" || c.OIDCProviderARN != "" || c.OIDCTokenFile != ""
	switch hasKey := c.AccessKey != "" || c.SecretKey != "" || c.SecurityToken != ""; {
	case !hasKey && oidc:
		all = append(all, setting{EnvRoleARN, "RoleARN", c.RoleARN}, setting{EnvOIDCProviderARN, "OIDCProviderARN", c.OIDCProviderARN},
			setting{EnvOIDCTokenFile, "OIDCTokenFile", c.OIDCTokenFile})
	case hasKey || c.ECSRole == "":
		all = append(all, setting{EnvAccessKey, "AccessKey", c.AccessKey.Reveal()}, setting{EnvSecretKey, "SecretKey", c.SecretKey.Reveal()})
	}
	return append(all, setting{EnvSecurityGroup, "SecureGroup", c.SecurityGroup}, setting{EnvVSwitch, "VSwitch", c.VSwitch})
}

// Complete sets defaults and validates the rest. The error, of class InvalidInput,
// names all required settings that are missing.
func (c *Config) Complete() error {
	c.trim()
	var missing []string
	for _, r := range c.required() {
		if r.value == "" {
			missing = append(missing, r.env+" ("+r.field+")")
		}
	}
	if len(missing) > 0 {
		return errdefs.InvalidInputf("eci config: missing %s: set the environment variables, or the fields of the configuration file",
			strings.Join(missing, ", "))
	}
	var wrong config.Checks
	check := wrong.That
	for _, q := range []struct {
		name, preset string
		quantity     *resource.Quantity
	}{{"CPU", "1000", &c.CPU}, {"Memory", "4Ti", &c.Memory}, {"Pods", "1000", &c.Pods}, {"GPU", "0", &c.GPU}} {
		check(q.quantity.Sign() >= 0, "%s: %s is negative", q.name, q.quantity.String())
		if q.quantity.IsZero() {
			*q.quantity = resource.MustParse(q.preset)
		}
	}
	u, err := url.Parse(c.Endpoint)
	check(c.Endpoint == "" || err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http"),
		"Endpoint: %q is not a URL such as https://eci.cn-hangzhou.aliyuncs.com", c.Endpoint)
	c.OperatingSystem = strings.ToLower(c.OperatingSystem)
	check(slices.Contains([]string{"", "linux", "windows"}, c.OperatingSystem), "OperatingSystem: %q is neither Linux nor Windows", c.OperatingSystem)
	for _, server := range c.ClusterDNS {
		_, err := netip.ParseAddr(server)
		check(err == nil, "ClusterDNS: %q is not an IP address", server)
	}
	check(c.CacheFor.Duration >= 0, "CacheFor: %s is negative", c.CacheFor.Duration)
	if err := config.Invalid("eci", wrong.Err()); err != nil {
		return err
	}
	if c.Budget == nil {
		c.Budget = NewBudget()
	}
	c.CacheFor.Duration = cmp.Or(c.CacheFor.Duration, 2*time.Second)
	return nil
}

// trim removes the white space at the end of settings that were read from files.
func (c *Config) trim() {
	for _, field := range reflect.ValueOf(c).Elem().Fields() {
		if field.Kind() == reflect.String {
			field.SetString(strings.TrimSpace(field.String()))
		}
	}
	c.VSwitch = strings.Join(strings.FieldsFunc(c.VSwitch, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }), ",")
}

// Merge overwrites the settings of c with the values of environment variables, as
// getenv returns them. An empty value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	err := config.Environment(getenv, map[string]any{
		EnvClusterName: &c.ClusterName, EnvRegion: &c.Region, EnvSecurityGroup: &c.SecurityGroup, EnvVSwitch: &c.VSwitch,
		EnvAccessKey: &c.AccessKey, EnvSecretKey: &c.SecretKey, EnvSecurityToken: &c.SecurityToken,
		EnvQuotaCPU: &c.CPU, EnvQuotaMemory: &c.Memory, EnvQuotaPod: &c.Pods,
		EnvUpdateFiles: &c.UpdateFiles, EnvClusterDNS: &c.ClusterDNS,
		EnvECSRole: &c.ECSRole, EnvRoleARN: &c.RoleARN, EnvOIDCProviderARN: &c.OIDCProviderARN, EnvOIDCTokenFile: &c.OIDCTokenFile,
	})
	return config.Invalid("eci", err)
}

// Secret is a string that is never printed: printing, formatting or marshalling it
// results in a placeholder.
type Secret = config.Secret

const hidden = "[hidden]" // in place of secrets in texts of others
