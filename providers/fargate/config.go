package fargate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says where tasks run, and how. The names of the first fields, down to Pods, are those
// of the provider that this one replaces.
type Config struct {
	// Region is AWS's; defaults to that of the credentials. ClusterName is the cluster of ECS,
	// which is created if it does not exist. Defaults to default.
	Region      string `json:"region,omitempty"`
	ClusterName string `json:"clusterName,omitempty"`
	// Subnets, at least one, and SecurityGroups are those of the tasks. SecurityGroups
	// default to the VPC's own.
	Subnets        []string `json:"subnets,omitempty"`
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// AssignPublicIPv4Address gives tasks public addresses.
	AssignPublicIPv4Address bool `json:"assignPublicIPv4Address,omitempty"`
	// ExecutionRoleArn is the role by which ECS pulls images, reads secrets and writes logs.
	ExecutionRoleArn string `json:"executionRoleArn,omitempty"`
	// CloudWatchLogGroupName is where logs are written. Without it there are none. It needs
	// ExecutionRoleArn.
	CloudWatchLogGroupName string `json:"cloudWatchLogGroupName,omitempty"`
	// PlatformVersion is that of Fargate. Defaults to LATEST.
	PlatformVersion string `json:"platformVersion,omitempty"`
	// OperatingSystem is Linux.
	OperatingSystem string `json:"operatingSystem,omitempty"`
	// CPU, Memory, Storage and Pods are the capacity of the node, by default 20, 40Gi, 40Gi
	// and 20.
	CPU     *resource.Quantity `json:"cpu,omitempty"`
	Memory  *resource.Quantity `json:"memory,omitempty"`
	Storage *resource.Quantity `json:"storage,omitempty"`
	Pods    *resource.Quantity `json:"pods,omitempty"`

	// TaskRoleArn is the role of the containers of pods without the annotation for it. Commands
	// in containers (kubectl exec) need a role that may open channels of ssmmessages.
	TaskRoleArn string `json:"taskRoleArn,omitempty"`
	// CPUArchitecture is X86_64, the default, or ARM64.
	CPUArchitecture string `json:"cpuArchitecture,omitempty"`
	// CapacityProviders are where tasks are placed, instead of on FARGATE alone.
	CapacityProviders []CapacityProvider `json:"capacityProviders,omitempty"`
	// Tags are further tags of tasks and task definitions.
	Tags map[string]string `json:"tags,omitempty"`
	// RegistryCredentials are the ARNs of secrets of Secrets Manager with the credentials of
	// registries, by the registry's name.
	RegistryCredentials map[string]string `json:"registryCredentials,omitempty"`
	// SecretsManager has values from Secrets, and credentials of registries, kept in AWS Secrets
	// Manager, and not in the task definitions. It needs ExecutionRoleArn.
	SecretsManager bool `json:"secretsManager,omitempty"`
	// FilesImage is an image with sh, base64 and tar, such as busybox, that writes the files of
	// ConfigMaps, Secrets and downward API volumes before the containers start. Without it pods
	// with such volumes are refused.
	FilesImage string `json:"filesImage,omitempty"`
	// Account keeps the calls within the rates of the account. Nodes of one process that use
	// the same one should share it. Defaults to NewAccount.
	Account *Account `json:"-"`
}

// CapacityProvider is an element of a strategy of capacity providers.
type CapacityProvider struct {
	// Name is FARGATE or FARGATE_SPOT.
	Name string `json:"name"`
	// Weight is its share of the tasks, and Base how many tasks it has before the weights count.
	// A single one has weight 1; else one at least has to have a weight.
	Weight int32 `json:"weight,omitempty"`
	Base   int32 `json:"base,omitempty"`
}

// ParseConfig decodes a configuration file: TOML without tables, YAML or JSON. It is strict:
// the error, of class InvalidInput, names all mistakes.
func ParseConfig(data []byte) (c Config, err error) {
	err = (config.Decoder{Loose: true}).Decode(config.FromFlatTOML(data), &c, nil)
	return c, config.Invalid("fargate", err)
}

// The values of settings.
const (
	archX86, archARM  = "X86_64", "ARM64"
	onDemand, onSpot  = "FARGATE", "FARGATE_SPOT"
	secretsManagerARN = ":secretsmanager:"
)

var roleRule = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::[0-9]{12}:role/.+$`)

// Complete sets defaults and validates the rest. The error, of class InvalidInput, names all
// mistakes.
func (c *Config) Complete() error {
	c.ClusterName, c.PlatformVersion, c.CPUArchitecture = cmp.Or(c.ClusterName, "default"), cmp.Or(c.PlatformVersion, "LATEST"), cmp.Or(c.CPUArchitecture, archX86)
	if c.Account == nil {
		c.Account = NewAccount()
	}
	var wrong config.Checks
	check := wrong.That
	wrong.Quantity("cpu", &c.CPU, "20")
	wrong.Quantity("memory", &c.Memory, "40Gi")
	wrong.Quantity("storage", &c.Storage, "40Gi")
	wrong.Quantity("pods", &c.Pods, "20")
	check(len(c.Subnets) > 0, "subnets: there has to be one")
	check(len(c.Subnets) <= 16 && len(c.SecurityGroups) <= 5, "subnets, securityGroups: there are more than 16 or 5")
	check(c.OperatingSystem == "" || strings.EqualFold(c.OperatingSystem, "linux"), "operatingSystem: %q is not Linux", c.OperatingSystem)
	check(c.CPUArchitecture == archX86 || c.CPUArchitecture == archARM, "cpuArchitecture: %q is neither %s nor %s", c.CPUArchitecture, archX86, archARM)
	for name, role := range map[string]string{"executionRoleArn": c.ExecutionRoleArn, "taskRoleArn": c.TaskRoleArn} {
		check(role == "" || roleRule.MatchString(role), "%s: %q is not an ARN such as arn:aws:iam::123456789012:role/pods", name, role)
	}
	check(c.CloudWatchLogGroupName == "" || c.ExecutionRoleArn != "", "cloudWatchLogGroupName: it needs executionRoleArn, by which logs are written")
	check(!c.SecretsManager || c.ExecutionRoleArn != "", "secretsManager: it needs executionRoleArn, by which secrets are read")
	if p := c.CapacityProviders; len(p) == 1 && p[0].Weight == 0 {
		p[0].Weight = 1
	}
	weighty := func(p CapacityProvider) bool { return p.Weight > 0 }
	check(len(c.CapacityProviders) == 0 || slices.ContainsFunc(c.CapacityProviders, weighty), "capacityProviders: none has a weight")
	bases := 0
	for _, p := range c.CapacityProviders {
		bases += min(int(max(p.Base, 0)), 1)
		check(p.Name == onDemand || p.Name == onSpot, "capacityProviders: %q is neither %s nor %s", p.Name, onDemand, onSpot)
		check(p.Weight >= 0 && p.Weight <= 1000 && p.Base >= 0 && p.Base <= 100_000, "capacityProviders: weight or base of %s is out of range", p.Name)
	}
	check(bases <= 1, "capacityProviders: only one may have a base")
	check(len(c.Tags) <= maxTags, "tags: there are more than %d, beside which a task has those of its pod", maxTags)
	for key, value := range c.Tags {
		check(tagRule.MatchString(key) && len(key) <= 128 && !strings.HasPrefix(strings.ToLower(key), "aws:") && tagRule.MatchString(value) && len(value) <= 256, "tags: %q is not a tag of AWS", key)
	}
	for registry, arn := range c.RegistryCredentials {
		check(strings.HasPrefix(arn, "arn:") && strings.Contains(arn, secretsManagerARN), "registryCredentials: that of %q is not the ARN of a secret of Secrets Manager", registry)
	}
	return config.Invalid("fargate", wrong.Err())
}

// maxTags leaves room for those of podgroup.Identity: ECS takes 50.
const maxTags = 40

// tagRule is what keys and values of tags consist of.
var tagRule = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]+$`)
