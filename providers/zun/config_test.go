package zun

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The settings that users of the older provider have: a file in TOML, and the variables of
// OpenStack's clients.
const usersFile = `Region = "RegionOne"
OperatingSystem = "Linux"
CPU = "40"
Memory = "200Gi"
Pods = "50"
`

var usersEnvironment = map[string]string{
	"OS_AUTH_URL": "https://keystone.example:5000/v3", "OS_USERNAME": "demo", "OS_PASSWORD": "s3cret", "OS_TENANT_NAME": "old", "OS_PROJECT_NAME": "demo",
	"OS_DOMAIN_ID": "default", "OS_REGION_NAME": "RegionTwo",
}

func TestUsersConfiguration(t *testing.T) {
	c, err := ParseConfig([]byte(usersFile))
	if err == nil {
		err = c.Merge(func(name string) string { return usersEnvironment[name] })
	}
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	auth, endpoints, _, err := c.credentials()
	if err != nil || c.CPU.String() != "40" || c.Memory.String() != "200Gi" || c.Pods.String() != "50" || endpoints.Region != "RegionTwo" {
		t.Errorf("%+v, %+v, %v", c, endpoints, err)
	}
	if auth.Username != "demo" || auth.Password != "s3cret" || auth.DomainID != "default" || auth.Scope.ProjectName != "demo" || auth.Scope.DomainID != "default" || !auth.AllowReauth {
		t.Errorf("%+v, scope %+v", auth, auth.Scope)
	}
	if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, "s3cret") {
		t.Errorf("the password is printed: %s", text)
	}
}

func TestCloudsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	text := "clouds:\n  lab:\n    auth: {auth_url: 'https://keystone.example/v3', application_credential_id: id, application_credential_secret: hush}\n    region_name: RegionOne\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_REGION_NAME", "")
	c := Config{Cloud: "lab", CloudsFile: path}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	auth, endpoints, _, err := c.credentials()
	if err != nil || auth.ApplicationCredentialSecret != "hush" || endpoints.Region != "RegionOne" {
		t.Errorf("%+v, %+v, %v", auth, endpoints, err)
	}
	c.Cloud = "other"
	if _, err := New(grouptest.NewCluster("a").Config(), c); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "other") {
		t.Errorf("an entry that does not exist: %v", err)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testConfig()
	if err := c.Merge(func(name string) string { return map[string]string{"OS_CACERT": path}[name] }); err != nil {
		t.Fatal(err)
	}
	_, _, certificates, err := c.credentials()
	if err != nil || certificates == nil {
		t.Fatalf("the certificates are %v, %v", certificates, err)
	}
	if _, err := server.Certificate().Verify(x509.VerifyOptions{Roots: certificates.RootCAs}); err != nil {
		t.Error(err)
	}
	c.CACert = path + "-that-is-not-there"
	if _, err := New(grouptest.NewCluster("a").Config(), c); !errdefs.IsInvalidInput(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	if _, err := ParseConfig([]byte("regoin: a\ncpu: much\n")); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "regoin") || !strings.Contains(err.Error(), "cpu") {
		t.Error(err)
	}
	for want, c := range map[string]Config{
		"authURL":                     {AuthURL: "https://user:word@keystone/v3", UserID: "u", Password: "p", ProjectID: "p"},
		"username and password":       {AuthURL: "https://keystone/v3", ProjectID: "p"},
		"projectID":                   {AuthURL: "https://keystone/v3", UserID: "u", Password: "p"},
		"applicationCredentialSecret": {AuthURL: "https://keystone/v3", ApplicationCredentialID: "a"},
		"operatingSystem":             {Cloud: "a", OperatingSystem: "Windows"},
		"interface":                   {Cloud: "a", Interface: "secret"},
	} {
		if err := c.Complete(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "word@") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
