package fargate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// testdata/older.toml has the settings of the sample that the older provider has published, with
// its names and values.
func TestUsersConfiguration(t *testing.T) {
	text, err := os.ReadFile("testdata/older.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(text)
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Region != "us-east-1" || c.ClusterName != "default" || len(c.Subnets) != 1 || c.Subnets[0] != "subnet-12345678" || c.SecurityGroups[0] != "sg-12345678" ||
		!c.AssignPublicIPv4Address || c.PlatformVersion != "LATEST" || c.CPU.String() != "20" || c.Memory.String() != "40Gi" || c.Storage.String() != "40Gi" || c.Pods.String() != "20" {
		t.Errorf("%+v", c)
	}
}

func TestMistakes(t *testing.T) {
	if _, err := ParseConfig([]byte("regoin: a\ncpu: much\n")); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "regoin") || !strings.Contains(err.Error(), "cpu") {
		t.Error(err)
	}
	good := func(change func(*Config)) Config {
		c := testConfig()
		change(&c)
		return c
	}
	for want, c := range map[string]Config{
		"subnets":                good(func(c *Config) { c.Subnets = nil }),
		"operatingSystem":        good(func(c *Config) { c.OperatingSystem = "Windows" }),
		"cpuArchitecture":        good(func(c *Config) { c.CPUArchitecture = "arm" }),
		"executionRoleArn":       good(func(c *Config) { c.ExecutionRoleArn = "pods" }),
		"cloudWatchLogGroupName": good(func(c *Config) { c.ExecutionRoleArn = "" }),
		"secretsManager":         good(func(c *Config) { c.ExecutionRoleArn, c.CloudWatchLogGroupName, c.SecretsManager = "", "", true }),
		"capacityProviders":      good(func(c *Config) { c.CapacityProviders = []CapacityProvider{{Name: "SPOT"}} }),
		"none has a weight":      good(func(c *Config) { c.CapacityProviders = []CapacityProvider{{Name: "FARGATE"}, {Name: "FARGATE_SPOT"}} }),
		"only one may have a base": good(func(c *Config) {
			c.CapacityProviders = []CapacityProvider{{Name: "FARGATE", Weight: 1, Base: 1}, {Name: "FARGATE_SPOT", Base: 1}}
		}),
		"is out of range": good(func(c *Config) { c.CapacityProviders = []CapacityProvider{{Name: "FARGATE", Weight: 1, Base: 100_001}} }),
		"more than 40": good(func(c *Config) {
			c.Tags = map[string]string{}
			for i := range 41 {
				c.Tags[fmt.Sprint("team-", i)] = "a"
			}
		}),
		"tags":                good(func(c *Config) { c.Tags = map[string]string{"aws:team": "a"} }),
		"registryCredentials": good(func(c *Config) { c.RegistryCredentials = map[string]string{"quay.io": "secret"} }),
	} {
		if err := c.Complete(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	single := good(func(c *Config) { c.CapacityProviders = []CapacityProvider{{Name: "FARGATE_SPOT"}} })
	if err := single.Complete(); err != nil || single.CapacityProviders[0].Weight != 1 {
		t.Errorf("a single capacity provider: %v, %+v", err, single.CapacityProviders)
	}
	if _, err := newBackend(testConfig(), aws.Config{}); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "region") {
		t.Errorf("no region: %v", err)
	}
}
