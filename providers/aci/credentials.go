package aci

import (
	"maps"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// clouds are Azure's clouds by their names in azure.json.
var clouds = map[string]*cloud.Configuration{
	"AzurePublicCloud": &cloud.AzurePublic, "AzureUSGovernmentCloud": &cloud.AzureGovernment, "AzureChinaCloud": &cloud.AzureChina,
}

// cloud returns the configured cloud.
func (c *Config) cloud() cloud.Configuration {
	found := *clouds[c.Cloud]
	if c.Endpoint != "" {
		found.Services = maps.Clone(found.Services)
		manager := found.Services[cloud.ResourceManager]
		manager.Endpoint = c.Endpoint
		found.Services[cloud.ResourceManager] = manager
	}
	return found
}

// credential returns what to authenticate with. It makes no call.
func (c *Config) credential(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	switch {
	case c.ClientSecret != "":
		return azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret.Reveal(), &azidentity.ClientSecretCredentialOptions{ClientOptions: options})
	case c.FederatedTokenFile != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, ClientID: c.ClientID, TenantID: c.TenantID, TokenFilePath: c.FederatedTokenFile,
		})
	}
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if id := c.ManagedIdentity; id != "" {
		managed.ID = azidentity.ClientID(id)
	} else if c.ClientID != "" {
		managed.ID = azidentity.ClientID(c.ClientID)
	}
	return azidentity.NewManagedIdentityCredential(managed)
}
