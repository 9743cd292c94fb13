package aci

import (
	"cmp"
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// Config says where container groups are created, and how.
type Config struct {
	// SubscriptionID, ResourceGroup and Region are where container groups are. Required,
	// unless the files of credentials have them.
	SubscriptionID string `json:"subscriptionID,omitempty"`
	ResourceGroup  string `json:"resourceGroup,omitempty"`
	Region         string `json:"region,omitempty"`
	// Cloud is AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud. Defaults to the
	// first.
	Cloud string `json:"cloud,omitempty"`
	// Endpoint is the address of Azure Resource Manager, if it is not the cloud's.
	Endpoint string `json:"endpoint,omitempty"`
	// TenantID and ClientID with ClientSecret are a service principal; with
	// FederatedTokenFile a workload identity. Without either ManagedIdentity is the client
	// ID of a managed identity, or empty for the machine's own.
	TenantID           string `json:"tenantID,omitempty"`
	ClientID           string `json:"clientID,omitempty"`
	ClientSecret       Secret `json:"clientSecret,omitempty"`
	FederatedTokenFile string `json:"federatedTokenFile,omitempty"`
	ManagedIdentity    string `json:"managedIdentity,omitempty"`
	// AuthFile is a file of Azure's SDKs with the credentials of a service principal, and
	// AKSCredentialFile the azure.json of nodes of AKS. They have what is not set here, once
	// ReadCredentials has read them.
	AuthFile          string `json:"authFile,omitempty"`
	AKSCredentialFile string `json:"aksCredentialFile,omitempty"`

	// ClusterName distinguishes this cluster's groups from those of others in the same
	// resource group. Defaults to kubernetes.
	ClusterName string `json:"clusterName,omitempty"`
	// SubnetName, of a virtual network, is where groups get private addresses; the subnet
	// has to be delegated to Microsoft.ContainerInstance/containerGroups. Without it groups
	// with ports get public ones. The subscription and resource group of the network default
	// to those of the groups. SubnetCIDR is checked, and otherwise not needed.
	VNetSubscriptionID string `json:"vnetSubscriptionID,omitempty"`
	VNetResourceGroup  string `json:"vnetResourceGroup,omitempty"`
	VNetName           string `json:"vnetName,omitempty"`
	SubnetName         string `json:"subnetName,omitempty"`
	SubnetCIDR         string `json:"subnetCIDR,omitempty"`
	// KubeDNSIP is the address of the cluster's DNS, for groups in a subnet, and
	// ClusterDomain its domain, by default cluster.local.
	KubeDNSIP     string `json:"kubeDNSIP,omitempty"`
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// MasterURI is the address of the API server, by default by HTTPS, that pods are given in
	// KUBERNETES_SERVICE_HOST, since addresses of services cannot be reached from groups.
	MasterURI string `json:"masterURI,omitempty"`
	// ClusterCIDR is accepted for users of an older provider, and not needed.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// LogAnalyticsID and LogAnalyticsKey are of the workspace that gets the groups' logs.
	// LogAnalyticsFile is a JSON file with workspaceId and workspaceKey, which ReadCredentials
	// reads if these are not set. With ClusterResourceID, the resource ID of the cluster,
	// Container Insights gets the logs, with the node and the pod.
	LogAnalyticsID    string `json:"logAnalyticsID,omitempty"`
	LogAnalyticsKey   Secret `json:"logAnalyticsKey,omitempty"`
	LogAnalyticsFile  string `json:"logAnalyticsFile,omitempty"`
	ClusterResourceID string `json:"clusterResourceID,omitempty"`
	// EnableRealTimeMetrics is accepted for users of an older provider. There are no figures of
	// pods, which is logged.
	EnableRealTimeMetrics bool `json:"enableRealTimeMetrics,omitempty"`
	// Identities are the resource IDs of the user-assigned managed identities of groups,
	// and ImageIdentity is one of them that reads images from Azure's registries.
	Identities    []string `json:"identities,omitempty"`
	ImageIdentity string   `json:"imageIdentity,omitempty"`
	// Zones are those of all groups, and Priority is Regular or Spot. Annotations of pods go
	// before both.
	Zones    []string `json:"zones,omitempty"`
	Priority string   `json:"priority,omitempty"`
	// StandbyPool and ContainerGroupProfile are resource IDs: groups come from the pool, if
	// it has some left, and are configured as its profile says, with ProfileRevision.
	StandbyPool           string `json:"standbyPool,omitempty"`
	ContainerGroupProfile string `json:"containerGroupProfile,omitempty"`
	ProfileRevision       int32  `json:"profileRevision,omitempty"`
	// ReadsPerMinute is how many groups are read a minute to see their states. Defaults to
	// 600; Azure's limit is 1500 for all reads.
	ReadsPerMinute int `json:"readsPerMinute,omitempty"`

	// OperatingSystem is Linux or Windows. CPU, Memory and Pods are the capacity of the
	// node, by default 10000, 4Ti and 5000, within the quotas of the region; GPU has none.
	OperatingSystem string             `json:"operatingSystem,omitempty"`
	CPU             *resource.Quantity `json:"cpu,omitempty"`
	Memory          *resource.Quantity `json:"memory,omitempty"`
	Pods            *resource.Quantity `json:"pods,omitempty"`
	GPU             *resource.Quantity `json:"gpu,omitempty"`
}

// Secret is a string that is never printed.
type Secret = config.Secret

// ParseConfig decodes a configuration file: YAML or JSON, or the TOML of the provider that
// this one replaces. It is strict: the error, of class InvalidInput, names all mistakes.
// Empty data is an empty configuration; Merge and Complete do the rest.
func ParseConfig(data []byte) (c Config, err error) {
	err = (config.Decoder{Loose: true}).Decode(config.FromFlatTOML(data), &c, nil)
	return c, config.Invalid("aci", err)
}

// Merge overwrites settings with environment variables, as getenv returns them. An empty
// value is ignored.
func (c *Config) Merge(getenv func(string) string) error {
	err := config.Environment(getenv, map[string]any{
		"ACI_RESOURCE_GROUP": &c.ResourceGroup, "ACI_REGION": &c.Region, "ACI_QUOTA_CPU": &c.CPU, "ACI_QUOTA_MEMORY": &c.Memory, "ACI_QUOTA_POD": &c.Pods, "ACI_QUOTA_GPU": &c.GPU,
		"ACI_VNET_NAME": &c.VNetName, "ACI_VNET_RESOURCE_GROUP": &c.VNetResourceGroup, "ACI_VNET_SUBSCRIPTION_ID": &c.VNetSubscriptionID,
		"ACI_SUBNET_NAME": &c.SubnetName, "ACI_SUBNET_CIDR": &c.SubnetCIDR, "KUBE_DNS_IP": &c.KubeDNSIP, "CLUSTER_CIDR": &c.ClusterCIDR, "MASTER_URI": &c.MasterURI,
		"LOG_ANALYTICS_ID": &c.LogAnalyticsID, "LOG_ANALYTICS_KEY": (*string)(&c.LogAnalyticsKey), "LOG_ANALYTICS_AUTH_LOCATION": &c.LogAnalyticsFile,
		"CLUSTER_RESOURCE_ID": &c.ClusterResourceID, "ENABLE_REAL_TIME_METRICS": &c.EnableRealTimeMetrics,
		"AZURE_AUTH_LOCATION": &c.AuthFile, "AKS_CREDENTIAL_LOCATION": &c.AKSCredentialFile,
		"AZURE_CLIENT_ID": &c.ClientID, "AZURE_CLIENT_SECRET": (*string)(&c.ClientSecret), "AZURE_TENANT_ID": &c.TenantID, "AZURE_SUBSCRIPTION_ID": &c.SubscriptionID,
		"AZURE_FEDERATED_TOKEN_FILE": &c.FederatedTokenFile, "VIRTUALNODE_USER_IDENTITY_CLIENTID": &c.ManagedIdentity,
	})
	return config.Invalid("aci", err)
}

// ReadCredentials sets what is not set to what AuthFile, AKSCredentialFile and LogAnalyticsFile
// have, which it reads by read. An error is of class InvalidInput.
func (c *Config) ReadCredentials(read func(string) ([]byte, error)) error {
	decode := func(path string, into any) error {
		if path == "" {
			return nil
		}
		data, err := read(path)
		if err != nil {
			return errdefs.InvalidInputf("aci config: credentials: %w", err)
		}
		// Files of Azure may begin with a mark of their encoding. The error of the decoder may
		// show what is in the file.
		if json.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), into) != nil {
			return errdefs.InvalidInputf("aci config: credentials: %s is not JSON", path)
		}
		return nil
	}
	var auth struct{ ClientID, ClientSecret, SubscriptionID, TenantID string }
	var aks struct {
		Cloud, TenantID, SubscriptionID, AADClientID, AADClientSecret, ResourceGroup, Location string
		VNetName, VNetResourceGroup, SubnetName, UserAssignedIdentityID                        string
	}
	if err := decode(c.AKSCredentialFile, &aks); err != nil {
		return err
	}
	if err := decode(c.AuthFile, &auth); err != nil {
		return err
	}
	var workspace struct{ WorkspaceID, WorkspaceKey string }
	if c.LogAnalyticsID == "" && c.LogAnalyticsKey == "" {
		if err := decode(c.LogAnalyticsFile, &workspace); err != nil {
			return err
		}
		c.LogAnalyticsID, c.LogAnalyticsKey = workspace.WorkspaceID, Secret(workspace.WorkspaceKey)
	}
	if strings.EqualFold(aks.AADClientID, "msi") { // a managed identity
		aks.AADClientID, aks.AADClientSecret = "", ""
	}
	if c.ClientID == "" && c.ManagedIdentity == "" {
		c.ClientID, c.ManagedIdentity = cmp.Or(aks.AADClientID, auth.ClientID), aks.UserAssignedIdentityID
		c.ClientSecret = cmp.Or(c.ClientSecret, Secret(aks.AADClientSecret), Secret(auth.ClientSecret))
	}
	c.TenantID, c.SubscriptionID = cmp.Or(c.TenantID, aks.TenantID, auth.TenantID), cmp.Or(c.SubscriptionID, aks.SubscriptionID, auth.SubscriptionID)
	c.Cloud, c.ResourceGroup, c.Region = cmp.Or(c.Cloud, aks.Cloud), cmp.Or(c.ResourceGroup, aks.ResourceGroup), cmp.Or(c.Region, aks.Location)
	c.VNetName, c.VNetResourceGroup = cmp.Or(c.VNetName, aks.VNetName), cmp.Or(c.VNetResourceGroup, aks.VNetResourceGroup)
	return nil
}

// defaultReads is how many groups are read a minute. Lists, logs and creations are reads, too.
const defaultReads = 600

var (
	uuidRule          = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	resourceGroupRule = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)
	resourceIDRule    = regexp.MustCompile(`^/subscriptions/[^/]+/resource[gG]roups/[^/]+/providers/[^/]+/[^/]+/[^/]+$`)
)

// Complete sets defaults and validates the rest. The error, of class InvalidInput, names
// all mistakes.
func (c *Config) Complete() error {
	c.ClusterName, c.Cloud = cmp.Or(c.ClusterName, "kubernetes"), cmp.Or(c.Cloud, "AzurePublicCloud")
	c.ClusterDomain, c.ReadsPerMinute = cmp.Or(c.ClusterDomain, "cluster.local"), cmp.Or(c.ReadsPerMinute, defaultReads)
	c.VNetSubscriptionID, c.VNetResourceGroup = cmp.Or(c.VNetSubscriptionID, c.SubscriptionID), cmp.Or(c.VNetResourceGroup, c.ResourceGroup)
	c.OperatingSystem, c.Region = cmp.Or(c.OperatingSystem, "Linux"), strings.ToLower(strings.ReplaceAll(c.Region, " ", ""))
	var wrong config.Checks
	check := wrong.That
	wrong.Quantity("cpu", &c.CPU, "10000")
	wrong.Quantity("memory", &c.Memory, "4Ti")
	wrong.Quantity("pods", &c.Pods, "5000")
	wrong.Quantity("gpu", &c.GPU, "0")
	check(uuidRule.MatchString(c.SubscriptionID), "subscriptionID (AZURE_SUBSCRIPTION_ID): %q is not the ID of a subscription", c.SubscriptionID)
	check(resourceGroupRule.MatchString(c.ResourceGroup), "resourceGroup (ACI_RESOURCE_GROUP): %q is not the name of a resource group", c.ResourceGroup)
	check(c.Region != "", "region (ACI_REGION): it is missing")
	check(clouds[c.Cloud] != nil, "cloud: %q is none of AzurePublicCloud, AzureUSGovernmentCloud and AzureChinaCloud", c.Cloud)
	check(slices.Contains([]string{"Linux", "Windows"}, c.OperatingSystem), "operatingSystem: %q is neither Linux nor Windows", c.OperatingSystem)
	check(slices.Contains([]string{"", "Regular", "Spot"}, c.Priority), "priority: %q is neither Regular nor Spot", c.Priority)
	check(c.ReadsPerMinute > 0, "readsPerMinute: it is negative")
	check(c.ClientSecret == "" && c.FederatedTokenFile == "" || c.ClientID != "" && c.TenantID != "", "clientID and tenantID (AZURE_CLIENT_ID, AZURE_TENANT_ID): clientSecret and federatedTokenFile need both")
	check(c.SubnetName == "" || c.VNetName != "", "vnetName (ACI_VNET_NAME): it is missing for subnet %s", c.SubnetName)
	if c.SubnetCIDR != "" {
		_, _, err := net.ParseCIDR(c.SubnetCIDR)
		check(err == nil && c.SubnetName != "", "subnetCIDR: %q is not a range of addresses, or subnetName is missing", c.SubnetCIDR)
	}
	check(c.KubeDNSIP == "" || net.ParseIP(c.KubeDNSIP) != nil, "kubeDNSIP: %q is not an address", c.KubeDNSIP)
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		check(err == nil && u.Scheme == "https" && u.Host != "", "endpoint: it is not a URL such as https://management.azure.com")
	}
	if c.MasterURI != "" {
		if !strings.Contains(c.MasterURI, "://") {
			c.MasterURI = "https://" + c.MasterURI
		}
		u, err := url.Parse(c.MasterURI)
		check(err == nil && u.Hostname() != "", "masterURI: it is not a URL such as https://kubernetes.example:443")
	}
	check((c.LogAnalyticsID == "") == (c.LogAnalyticsKey == ""), "logAnalyticsID and logAnalyticsKey: one is missing")
	check((c.StandbyPool == "") == (c.ContainerGroupProfile == ""), "standbyPool and containerGroupProfile: one is missing")
	for _, id := range slices.Concat(c.Identities, []string{c.ImageIdentity, c.StandbyPool, c.ContainerGroupProfile}) {
		check(id == "" || resourceIDRule.MatchString(id), "identities, imageIdentity, standbyPool or containerGroupProfile: %q is not a resource ID", id)
	}
	return config.Invalid("aci", wrong.Err())
}
