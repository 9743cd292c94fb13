package eci

import (
	"cmp"
	"net/url"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config configures where container groups are created, and what the node offers.
type Config struct {
	// ClusterName distinguishes the container groups of this cluster from those of
	// others in the same account: two clusters with the same name, and nodes of the
	// same name, would have the same pods. Required.
	ClusterName string
	// Region is the region, such as cn-hangzhou. Required.
	Region string
	// AccessKey and SecretKey are the credentials. Required.
	AccessKey Secret
	SecretKey Secret
	// SecurityGroup is the ID of the security group of container groups.
	// Required.
	SecurityGroup string
	// VSwitch are the IDs of the vSwitches to try, one or more, separated by commas.
	// Each determines a zone. Required.
	VSwitch string

	// Zone limits container groups to one zone of the region. Defaults to those
	// of the vSwitches.
	Zone string
	// RAMRole is the RAM role of container groups. Defaults to none.
	RAMRole string
	// Endpoint is the URL of another endpoint of the ECI API, such as
	// https://eci-vpc.cn-hangzhou.aliyuncs.com. Defaults to the region's.
	Endpoint string
	// OperatingSystem is Linux or Windows. Defaults to the node's.
	OperatingSystem string

	// CPU, Memory and Pods are the capacity of the node. The actual limits are the
	// quotas of the account. Default to 1000, 4Ti and 1000.
	CPU, Memory, Pods resource.Quantity
	// GPU is the node's capacity of nvidia.com/gpu. Defaults to none: the scheduler
	// does not place pods that request some on the node.
	GPU resource.Quantity

	// CacheFor is the maximum age of a listing that is reused. Defaults to two seconds.
	CacheFor time.Duration
}

// The default capacity.
const (
	defaultQuotaCPU    = "1000"
	defaultQuotaMemory = "4Ti"
	defaultQuotaPods   = "1000"
)

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
)

// required returns the settings without a default, with the environment variable and
// the field of the file that set each.
func (c *Config) required() []struct{ env, field, value string } {
	return []struct{ env, field, value string }{
		{EnvClusterName, "ClusterName", c.ClusterName},
		{EnvRegion, "Region", c.Region},
		{EnvAccessKey, "AccessKey", c.AccessKey.Reveal()},
		{EnvSecretKey, "SecretKey", c.SecretKey.Reveal()},
		{EnvSecurityGroup, "SecureGroup", c.SecurityGroup},
		{EnvVSwitch, "VSwitch", c.VSwitch},
	}
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
	for _, q := range []struct {
		name, value string
		quantity    *resource.Quantity
	}{
		{"CPU", defaultQuotaCPU, &c.CPU},
		{"Memory", defaultQuotaMemory, &c.Memory},
		{"Pods", defaultQuotaPods, &c.Pods},
	} {
		if q.quantity.Sign() < 0 {
			return errdefs.InvalidInputf("eci config: %s: %s is negative", q.name, q.quantity.String())
		}
		if q.quantity.IsZero() {
			*q.quantity = resource.MustParse(q.value)
		}
	}
	if c.GPU.Sign() < 0 {
		return errdefs.InvalidInputf("eci config: GPU: %s is negative", c.GPU.String())
	}
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return errdefs.InvalidInputf("eci config: Endpoint: %q is not a URL such as https://eci.cn-hangzhou.aliyuncs.com", c.Endpoint)
		}
	}
	switch strings.ToLower(c.OperatingSystem) {
	case "", "linux", "windows":
		c.OperatingSystem = strings.ToLower(c.OperatingSystem)
	default:
		return errdefs.InvalidInputf("eci config: OperatingSystem: %q is neither Linux nor Windows", c.OperatingSystem)
	}
	c.CacheFor = cmp.Or(c.CacheFor, 2*time.Second)
	if c.CacheFor < 0 {
		return errdefs.InvalidInputf("eci config: CacheFor: %s is negative", c.CacheFor)
	}
	return nil
}

// trim removes the white space at the end of settings that were read from files.
func (c *Config) trim() {
	for _, field := range []*string{
		&c.ClusterName, &c.Region, (*string)(&c.AccessKey), (*string)(&c.SecretKey), &c.SecurityGroup, &c.Zone, &c.RAMRole, &c.Endpoint, &c.OperatingSystem,
	} {
		*field = strings.TrimSpace(*field)
	}
	c.VSwitch = strings.Join(strings.FieldsFunc(c.VSwitch, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }), ",")
}

// Merge overwrites the settings of c with the values of environment variables, as
// getenv returns them. An empty value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	err := config.Environment(getenv, map[string]any{
		EnvClusterName:   &c.ClusterName,
		EnvRegion:        &c.Region,
		EnvSecurityGroup: &c.SecurityGroup,
		EnvVSwitch:       &c.VSwitch,
		EnvAccessKey:     (*string)(&c.AccessKey),
		EnvSecretKey:     (*string)(&c.SecretKey),
		EnvQuotaCPU:      &c.CPU,
		EnvQuotaMemory:   &c.Memory,
		EnvQuotaPod:      &c.Pods,
	})
	if err != nil {
		return errdefs.InvalidInputf("eci config: %w", err)
	}
	return nil
}
