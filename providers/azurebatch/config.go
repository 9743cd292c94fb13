package azurebatch

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says in which pool tasks run, and how.
type Config struct {
	// AccountName and AccountLocation are the Batch account's. AccountEndpoint defaults to the
	// address that is made of them.
	AccountName     string `json:"accountName,omitempty"`
	AccountLocation string `json:"accountLocation,omitempty"`
	AccountEndpoint string `json:"accountEndpoint,omitempty"`
	// AccountKey is a key of the account, instead of the credentials below.
	AccountKey Secret `json:"accountKey,omitempty"`
	// TenantID, ClientID and ClientSecret are a service principal's. With FederatedTokenFile
	// instead of a secret it is a workload identity. Without both it is the machine's managed
	// identity, of ClientID if that is set, or the one that the machine has.
	TenantID           string `json:"tenantID,omitempty"`
	ClientID           string `json:"clientID,omitempty"`
	ClientSecret       Secret `json:"clientSecret,omitempty"`
	FederatedTokenFile string `json:"federatedTokenFile,omitempty"`
	// Cloud is AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud. Defaults to the
	// first.
	Cloud string `json:"cloud,omitempty"`
	// SubscriptionID and ResourceGroup are accepted, and not used.
	SubscriptionID string `json:"subscriptionID,omitempty"`
	ResourceGroup  string `json:"resourceGroup,omitempty"`

	// PoolID is the pool, which has to exist. JobID is the job of the node's tasks, which is
	// created if it does not exist. Defaults to the node's name.
	PoolID string `json:"poolID,omitempty"`
	JobID  string `json:"jobID,omitempty"`
	// ClusterName distinguishes this cluster's tasks from those of others in the same job.
	// Defaults to kubernetes.
	ClusterName string `json:"clusterName,omitempty"`
	// HelperImage has a shell and the Docker client. Scripts run in it on pools for
	// containers, and one of its containers holds the network of pods that a script runs.
	HelperImage string `json:"helperImage,omitempty"`
	// MaxRetries is how often containers with restartPolicy OnFailure are started again; -1,
	// the default, is without limit.
	MaxRetries *int32 `json:"maxRetries,omitempty"`
	// Retention is how long logs and files are kept on the machine after the end of a task.
	// Defaults to seven days.
	Retention metav1.Duration `json:"retention,omitempty"`
	// APIAccess has pods get the volume with a token that the API server adds to each.
	APIAccess bool `json:"apiAccess,omitempty"`

	// NodeCPU, NodeMemory and NodeGPUs are what a machine of the pool has. They default to
	// what the name of its size says: the number of CPUs, 4Gi for each, and a GPU in sizes
	// that begin with N.
	NodeCPU    *resource.Quantity `json:"nodeCPU,omitempty"`
	NodeMemory *resource.Quantity `json:"nodeMemory,omitempty"`
	NodeGPUs   *resource.Quantity `json:"nodeGPUs,omitempty"`
	// MaxNodes is how many machines a pool that scales by a formula may have. Defaults to 100.
	MaxNodes int64 `json:"maxNodes,omitempty"`
	// CPU, Memory and Pods are the node's capacity, instead of what the pool has.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
}

// Secret is a string that is never printed.
type Secret = config.Secret

// CredentialsFile is the variable that names a file for MergeCredentials.
const CredentialsFile = "AZURE_CREDENTIALS_LOCATION"

// MergeCredentials sets what is not set from a file with the credentials of a cluster, as AKS
// has it in /etc/kubernetes/azure.json. A client ID of msi means a managed identity.
func (c *Config) MergeCredentials(data []byte) error {
	var f struct {
		Cloud                  string `json:"cloud"`
		TenantID               string `json:"tenantId"`
		SubscriptionID         string `json:"subscriptionId"`
		ClientID               string `json:"aadClientId"`
		ClientSecret           Secret `json:"aadClientSecret"`
		ResourceGroup          string `json:"resourceGroup"`
		UserAssignedIdentityID string `json:"userAssignedIdentityID"`
	}
	if json.Unmarshal(data, &f) != nil { // whose error may quote the secret
		return errdefs.InvalidInputf("azurebatch config: %s does not name a file in JSON such as azure.json of AKS", CredentialsFile)
	}
	if f.ClientID == "msi" || f.ClientSecret == "msi" {
		f.ClientID, f.ClientSecret = f.UserAssignedIdentityID, ""
	}
	if c.ClientID == "" { // both, or none
		c.ClientID, c.ClientSecret = f.ClientID, cmp.Or(c.ClientSecret, f.ClientSecret)
	}
	c.Cloud, c.TenantID = cmp.Or(c.Cloud, f.Cloud), cmp.Or(c.TenantID, f.TenantID)
	c.SubscriptionID, c.ResourceGroup = cmp.Or(c.SubscriptionID, f.SubscriptionID), cmp.Or(c.ResourceGroup, f.ResourceGroup)
	return nil
}

// Merge overwrites settings with environment variables, as getenv returns them. An empty
// value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	err := config.Environment(getenv, map[string]any{
		"AZURE_BATCH_ACCOUNT_NAME": &c.AccountName, "AZURE_BATCH_ACCOUNT_LOCATION": &c.AccountLocation, "AZURE_BATCH_ENDPOINT": &c.AccountEndpoint,
		"AZURE_BATCH_ACCESS_KEY": (*string)(&c.AccountKey), "AZURE_BATCH_POOLID": &c.PoolID, "AZURE_BATCH_JOBID": &c.JobID,
		"AZURE_TENANT_ID": &c.TenantID, "AZURE_CLIENT_ID": &c.ClientID, "AZURE_CLIENT_SECRET": (*string)(&c.ClientSecret),
		"AZURE_FEDERATED_TOKEN_FILE": &c.FederatedTokenFile, "AZURE_SUBSCRIPTION_ID": &c.SubscriptionID, "AZURE_RESOURCE_GROUP": &c.ResourceGroup,
	})
	return config.Invalid("azurebatch", err)
}

// ParseConfig decodes a configuration file in YAML, JSON or flat TOML. It is strict: the
// error, of class InvalidInput, names all mistakes. Empty data is an empty configuration;
// MergeCredentials, Merge and Complete do the rest.
func ParseConfig(data []byte) (c Config, err error) {
	err = config.Decoder{Loose: true}.Decode(config.FromFlatTOML(data), &c, nil)
	return c, config.Invalid("azurebatch", err)
}

// environment is where a cloud has its services.
type environment struct{ suffix, scope string }

var environments = map[string]environment{
	"AzurePublicCloud":       {"batch.azure.com", "https://batch.core.windows.net//.default"},
	"AzureChinaCloud":        {"batch.chinacloudapi.cn", "https://batch.chinacloudapi.cn//.default"},
	"AzureUSGovernmentCloud": {"batch.usgovcloudapi.net", "https://batch.core.usgovcloudapi.net//.default"},
}

var (
	accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	// idRule is that of IDs of pools, jobs and tasks.
	idRule   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	notAnID  = regexp.MustCompile(`[^A-Za-z0-9_-]`)
	imageRef = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)
)

// Complete sets defaults for a node, and validates the rest. The error, of class
// InvalidInput, names all mistakes.
func (c *Config) Complete(node string) error {
	c.ClusterName, c.HelperImage, c.Cloud = cmp.Or(c.ClusterName, "kubernetes"), cmp.Or(c.HelperImage, "docker.io/library/docker:28-cli"), cmp.Or(c.Cloud, "AzurePublicCloud")
	if c.JobID == "" {
		id := notAnID.ReplaceAllString(node, "-")
		c.JobID = id[:min(len(id), 64)]
	}
	if c.MaxRetries == nil {
		c.MaxRetries = new(int32(-1))
	}
	c.Retention.Duration = cmp.Or(c.Retention.Duration, defaultRetention)
	c.MaxNodes = cmp.Or(c.MaxNodes, 100)
	var wrong config.Checks
	check := wrong.That
	known, ok := environments[c.Cloud]
	check(ok, "cloud: %q is none of AzurePublicCloud, AzureChinaCloud and AzureUSGovernmentCloud", c.Cloud)
	check(accountName.MatchString(c.AccountName), "accountName: %q is not 3 to 24 lower-case letters and digits", c.AccountName)
	if c.AccountEndpoint == "" {
		check(regexp.MustCompile(`^[a-z0-9]+$`).MatchString(c.AccountLocation), "accountLocation: %q is not a location such as westeurope, and accountEndpoint is not set", c.AccountLocation)
		c.AccountEndpoint = "https://" + c.AccountName + "." + c.AccountLocation + "." + known.suffix
	}
	u, err := url.Parse(c.AccountEndpoint)
	check(err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "", "accountEndpoint: it is not a URL such as https://account.westeurope.batch.azure.com")
	c.AccountEndpoint = strings.TrimRight(c.AccountEndpoint, "/")
	check(idRule.MatchString(c.PoolID), "poolID: %q is not 1 to 64 letters, digits, hyphens and underscores", c.PoolID)
	check(idRule.MatchString(c.JobID), "jobID: %q is not 1 to 64 letters, digits, hyphens and underscores", c.JobID)
	check(len(c.ClusterName) <= 100, "clusterName: it is longer than 100 characters")
	check(imageRef.MatchString(c.HelperImage), "helperImage: %q is not the name of an image", c.HelperImage)
	check(*c.MaxRetries >= -1, "maxRetries: it is less than -1, which is without limit")
	check(c.Retention.Duration >= 0, "retention: it is negative")
	check(c.MaxNodes > 0, "maxNodes: it is negative")
	if c.AccountKey == "" && (c.ClientSecret != "" || c.FederatedTokenFile != "") {
		check(c.TenantID != "" && c.ClientID != "", "tenantID and clientID: a service principal, and a workload identity, have both")
	}
	for name, q := range map[string]*resource.Quantity{"nodeCPU": c.NodeCPU, "nodeMemory": c.NodeMemory, "nodeGPUs": c.NodeGPUs, "cpu": c.CPU, "memory": c.Memory, "pods": c.Pods} {
		check(q == nil || q.Sign() >= 0, "%s: it is negative", name)
	}
	return config.Invalid("azurebatch", wrong.Err())
}
