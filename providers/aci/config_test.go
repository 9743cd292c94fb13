package aci

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The settings that users of the older provider have: a file in TOML, variables, and the
// azure.json of a node of AKS.
const (
	usersFile = `Region = "West US 2"
ResourceGroup = "of-the-file"
OperatingSystem = "Linux"
CPU = "40"
Memory = "200Gi"
Pods = "50"
SubnetName = "groups"
SubnetCIDR = "10.241.0.0/16"
`
	usersAKS = "\ufeff" + `{"cloud": "AzureUSGovernmentCloud", "tenantId": "tenant", "subscriptionId": "11111111-2222-3333-4444-555555555555", "aadClientId": "client", "aadClientSecret": "not-to-be-shown",
"resourceGroup": "MC_group", "location": "usgovvirginia", "vnetName": "aks-net", "vnetResourceGroup": "net-group", "subnetName": "nodes", "useManagedIdentityExtension": true, "userAssignedIdentityID": ""}`
	usersAuth = `{"clientId": "client", "clientSecret": "not-to-be-shown", "subscriptionId": "11111111-2222-3333-4444-555555555555", "tenantId": "tenant", "activeDirectoryEndpointUrl": "https://login"}`
)

var usersEnvironment = map[string]string{
	"ACI_RESOURCE_GROUP": "aci-group", "ACI_SUBNET_NAME": "other", "KUBE_DNS_IP": "10.0.0.10", "CLUSTER_CIDR": "10.240.0.0/16", "MASTER_URI": "https://master.example",
	"ACI_QUOTA_CPU": "100", "LOG_ANALYTICS_ID": "id", "LOG_ANALYTICS_KEY": "not-to-be-shown", "AKS_CREDENTIAL_LOCATION": "/etc/aks/azure.json",
}

func files(contents map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, ok := contents[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
}

func TestUsersConfiguration(t *testing.T) {
	c, err := ParseConfig([]byte(usersFile))
	err = errors.Join(err, c.Merge(func(name string) string { return usersEnvironment[name] }), c.ReadCredentials(files(map[string]string{"/etc/aks/azure.json": usersAKS})), c.Complete())
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.ResourceGroup, " ", c.Region, " ", c.Cloud, " ", c.SubscriptionID, " ", c.VNetSubscriptionID, " ", c.VNetResourceGroup, " ", c.VNetName, " ", c.SubnetName, " ", c.CPU, " ", c.Memory, " ", c.Pods, " ", c.KubeDNSIP)
	if want := "aci-group westus2 AzureUSGovernmentCloud 11111111-2222-3333-4444-555555555555 11111111-2222-3333-4444-555555555555 net-group aks-net other 100 200Gi 50 10.0.0.10"; got != want {
		t.Errorf("the configuration is\n%s, want\n%s", got, want)
	}
	if credential, err := c.credential(azcore.ClientOptions{}); err != nil {
		t.Error(err)
	} else if _, ok := credential.(*azidentity.ClientSecretCredential); !ok {
		t.Errorf("the credential is a %T", credential)
	}
	if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, "not-to-be-shown") {
		t.Errorf("a secret is printed: %s", text)
	}
}

// Variables that the older provider has for logs and figures, and addresses of API servers.
func TestOlderVariables(t *testing.T) {
	c := testConfig()
	variables := map[string]string{"LOG_ANALYTICS_AUTH_LOCATION": "workspace", "CLUSTER_RESOURCE_ID": "/subscriptions/s", "ENABLE_REAL_TIME_METRICS": "true", "MASTER_URI": "api.example:6443"}
	read := files(map[string]string{"workspace": `{"workspaceId": "id", "workspaceKey": "not-to-be-shown"}`})
	if err := errors.Join(c.Merge(func(name string) string { return variables[name] }), c.ReadCredentials(read), c.Complete()); err != nil {
		t.Fatal(err)
	}
	if c.LogAnalyticsID != "id" || c.LogAnalyticsKey.Reveal() != "not-to-be-shown" || c.ClusterResourceID != "/subscriptions/s" || !c.EnableRealTimeMetrics || c.MasterURI != "https://api.example:6443" {
		t.Errorf("the configuration is %+v", c)
	}
	c.LogAnalyticsID, c.LogAnalyticsKey = "own", "own"
	if err := c.ReadCredentials(files(nil)); err != nil || c.LogAnalyticsID != "own" {
		t.Errorf("settings do not go before the file: %s, %v", c.LogAnalyticsID, err)
	}
	for uri, want := range map[string]string{"10.0.0.1": "https://10.0.0.1", "api.example": "https://api.example", "http://api.example": "http://api.example"} {
		c := testConfig()
		c.MasterURI = uri
		if err := c.Complete(); err != nil || c.MasterURI != want {
			t.Errorf("%s: %s, %v", uri, c.MasterURI, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	const identity = "22222222-2222-3333-4444-555555555555"
	msi := strings.NewReplacer(`"aadClientId": "client"`, `"aadClientId": "msi"`, `"userAssignedIdentityID": ""`, `"userAssignedIdentityID": "`+identity+`"`).Replace(usersAKS)
	for name, test := range map[string]struct {
		c    Config
		want any
	}{
		"AKS with a managed identity": {Config{AKSCredentialFile: "msi"}, &azidentity.ManagedIdentityCredential{}},
		"a file of the SDK":           {Config{AuthFile: "auth"}, &azidentity.ClientSecretCredential{}},
		"a workload identity":         {Config{ClientID: "client", TenantID: "tenant", FederatedTokenFile: "/token"}, &azidentity.WorkloadIdentityCredential{}},
		"a managed identity":          {Config{ManagedIdentity: identity}, &azidentity.ManagedIdentityCredential{}},
		"the machine's":               {Config{}, &azidentity.ManagedIdentityCredential{}},
	} {
		c := test.c
		if err := c.ReadCredentials(files(map[string]string{"msi": msi, "auth": usersAuth})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		credential, err := c.credential(azcore.ClientOptions{})
		if fmt.Sprintf("%T", credential) != fmt.Sprintf("%T", test.want) || err != nil {
			t.Errorf("%s: %T, %v", name, credential, err)
		}
		if name == "AKS with a managed identity" && (c.ManagedIdentity != identity || c.ClientSecret != "") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	c := Config{AuthFile: "wrong"}
	if err := c.ReadCredentials(files(map[string]string{"wrong": "not-to-be-shown"})); !errdefs.IsInvalidInput(err) || strings.Contains(err.Error(), "not-to-be-shown") {
		t.Errorf("a file that is not JSON: %v", err)
	}
	c = Config{AKSCredentialFile: "absent"}
	if err := c.ReadCredentials(files(nil)); !errdefs.IsInvalidInput(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	if _, err := ParseConfig([]byte("regoin: a\ncpu: much\n")); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "regoin") || !strings.Contains(err.Error(), "cpu") {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"subscriptionID":        func(c *Config) { c.SubscriptionID = "mine" },
		"resourceGroup":         func(c *Config) { c.ResourceGroup = "a/b" },
		"region":                func(c *Config) { c.Region = "" },
		"cloud":                 func(c *Config) { c.Cloud = "AzureMoon" },
		"operatingSystem":       func(c *Config) { c.OperatingSystem = "Plan9" },
		"priority":              func(c *Config) { c.Priority = "low" },
		"readsPerMinute":        func(c *Config) { c.ReadsPerMinute = -1 },
		"clientID and tenantID": func(c *Config) { c.ClientSecret = "not-to-be-shown" },
		"vnetName":              func(c *Config) { c.VNetName = "" },
		"subnetCIDR":            func(c *Config) { c.SubnetCIDR = "10.0.0.0" },
		"kubeDNSIP":             func(c *Config) { c.KubeDNSIP = "dns" },
		"masterURI":             func(c *Config) { c.MasterURI = "https://" },
		"logAnalyticsID":        func(c *Config) { c.LogAnalyticsKey = "not-to-be-shown" },
		"standbyPool and":       func(c *Config) { c.StandbyPool = "/subscriptions/s/resourceGroups/g/providers/a/b/c" },
		"is not a resource ID":  func(c *Config) { c.ImageIdentity = "images" },
	} {
		c := testConfig()
		change(&c)
		if err := c.Complete(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "not-to-be-shown") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
