package azurebatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The settings that users of the older provider have: the variables of its README and of its
// Terraform template, and AKS's file.
var usersEnvironment = map[string]string{
	"AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001", "AZURE_CLIENT_SECRET": "s3cret", "AZURE_RESOURCE_GROUP": "group",
	"AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000002", "AZURE_TENANT_ID": "00000000-0000-0000-0000-000000000003",
	"AZURE_BATCH_POOLID": "pool1", "AZURE_BATCH_JOBID": "vk-host", "AZURE_BATCH_ACCOUNT_LOCATION": "westeurope", "AZURE_BATCH_ACCOUNT_NAME": "gpuaccount",
}

const usersFile = `{"cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "aadClientId": "c", "aadClientSecret": "s3cret", "resourceGroup": "g", "location": "westeurope", "vnetName": "v"}`

func TestUsersConfiguration(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"variables": usersEnvironment,
		"a file":    {"AZURE_BATCH_POOLID": "pool1", "AZURE_BATCH_JOBID": "vk-host", "AZURE_BATCH_ACCOUNT_LOCATION": "westeurope", "AZURE_BATCH_ACCOUNT_NAME": "gpuaccount"},
	} {
		c, err := ParseConfig(nil)
		if err == nil {
			err = c.Merge(func(name string) string { return env[name] })
		}
		if err == nil && name == "a file" {
			err = c.MergeCredentials([]byte(usersFile))
		}
		if err == nil {
			err = c.Complete("node")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.AccountEndpoint != "https://gpuaccount.westeurope.batch.azure.com" || c.PoolID != "pool1" || c.JobID != "vk-host" || c.ClientSecret.Reveal() != "s3cret" || c.TenantID == "" {
			t.Errorf("%s: %+v", name, c)
		}
		credential, err := newCredential(&c, azcore.ClientOptions{})
		if _, ok := credential.(*azidentity.ClientSecretCredential); !ok || err != nil {
			t.Errorf("%s: the credential is %T, %v", name, credential, err)
		}
		if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, "s3cret") {
			t.Errorf("%s: the secret is printed: %s", name, text)
		}
	}
}

func TestManagedIdentityOfAKS(t *testing.T) {
	c := Config{AccountName: "account", AccountLocation: "westeurope", PoolID: "p"}
	if err := c.MergeCredentials([]byte(`{"tenantId": "t", "aadClientId": "msi", "aadClientSecret": "msi", "userAssignedIdentityID": "id"}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Complete("node-1.example"); err != nil || c.ClientID != "id" || c.ClientSecret != "" || c.JobID != "node-1-example" {
		t.Errorf("%+v, %v", c, err)
	}
	credential, err := newCredential(&c, azcore.ClientOptions{})
	if _, ok := credential.(*azidentity.ManagedIdentityCredential); !ok || err != nil {
		t.Errorf("the credential is %T, %v", credential, err)
	}
}

func TestMistakes(t *testing.T) {
	if _, err := ParseConfig([]byte("poolld: a\nmaxRetries: many\n")); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "poolld") || !strings.Contains(err.Error(), "maxRetries") {
		t.Error(err)
	}
	var c Config
	if err := c.MergeCredentials([]byte(`{"aadClientSecret": "s3cret"`)); !errdefs.IsInvalidInput(err) || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"accountName":           func(c *Config) { c.AccountName = "Upper" },
		"accountLocation":       func(c *Config) { c.AccountLocation = "west/europe" },
		"accountEndpoint":       func(c *Config) { c.AccountEndpoint = "http://account.example" },
		"poolID":                func(c *Config) { c.PoolID = "a b" },
		"jobID":                 func(c *Config) { c.JobID = strings.Repeat("j", 65) },
		"cloud":                 func(c *Config) { c.Cloud = "AzureMoonCloud" },
		"helperImage":           func(c *Config) { c.HelperImage = "--privileged" },
		"maxRetries":            func(c *Config) { c.MaxRetries = new(int32(-2)) },
		"tenantID and clientID": func(c *Config) { c.ClientSecret = "s3cret" },
	} {
		c := Config{AccountName: "account", AccountLocation: "westeurope", PoolID: "p"}
		change(&c)
		if err := c.Complete("node"); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", want, err)
		}
	}
	c = testConfig()
	c.AccountKey = "not base64"
	if _, err := newBackend(c, "vk", nil); !errdefs.IsInvalidInput(err) || strings.Contains(err.Error(), "not base64") && !strings.Contains(err.Error(), "it is not base64") {
		t.Error(err)
	}
}
