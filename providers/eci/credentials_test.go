package eci

import (
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// An access key goes before a role; one or the other is needed, and a role needs all that
// it is exchanged with.
func TestSourcesOfCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		env     map[string]string
		source  string
		missing []string
	}{
		"an access key":     {env: map[string]string{EnvAccessKey: "k", EnvSecretKey: "s", EnvECSRole: "vk"}, source: "static_ak"},
		"a temporary key":   {env: map[string]string{EnvAccessKey: "k", EnvSecretKey: "s", EnvSecurityToken: "t"}, source: "static_sts"},
		"the machine's":     {env: map[string]string{EnvECSRole: "vk"}, source: "ecs_ram_role"},
		"a service account": {env: map[string]string{EnvRoleARN: "acs:ram::1:role/vk", EnvOIDCProviderARN: "acs:ram::1:oidc-provider/ack", EnvOIDCTokenFile: "/token"}, source: "oidc_role_arn"},
		"half a key":        {env: map[string]string{EnvAccessKey: "k", EnvECSRole: "vk"}, missing: []string{EnvSecretKey}},
		"a token alone":     {env: map[string]string{EnvSecurityToken: "t"}, missing: []string{EnvAccessKey, EnvSecretKey}},
		"half a role":       {env: map[string]string{EnvRoleARN: "acs:ram::1:role/vk"}, missing: []string{EnvOIDCProviderARN, EnvOIDCTokenFile}},
		"nothing":           {missing: []string{EnvAccessKey, EnvSecretKey}},
	} {
		config := testConfig("")
		config.AccessKey, config.SecretKey = "", ""
		err := config.Merge(func(name string) string { return c.env[name] })
		if err == nil {
			err = config.Complete()
		}
		if len(c.missing) > 0 {
			for _, setting := range c.missing {
				if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), setting) {
					t.Errorf("%s: the error is %v, want one that names %s", name, err, setting)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		keys, err := newKeys(&config)
		if err != nil || keys.source.GetProviderName() != c.source {
			t.Errorf("%s: the source is %v, want %s: %v", name, keys, c.source, err)
		}
	}
}

// A variable that is neither true nor false, and an address that is none, are named.
func TestSettingsOfPods(t *testing.T) {
	config := testConfig("")
	env := map[string]string{EnvUpdateFiles: "perhaps", EnvClusterDNS: "172.21.0.10, dns.example"}
	getenv := func(name string) string { return env[name] }
	if err := config.Merge(getenv); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), EnvUpdateFiles) {
		t.Errorf("the error is %v", err)
	}
	env[EnvUpdateFiles] = "false"
	if err := config.Merge(getenv); err != nil || config.UpdateFiles || len(config.ClusterDNS) != 2 {
		t.Errorf("the config is %+v: %v", config, err)
	}
	if err := config.Complete(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "dns.example") {
		t.Errorf("the error is %v", err)
	}
}
