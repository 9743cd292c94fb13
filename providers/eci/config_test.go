package eci

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const tomlConfig = `
# the fields of the public provider
Region = "cn-hangzhou"
OperatingSystem = "Linux"
CPU = "20"
Memory = "100Gi"
Pods = "50"
VSwitch = "vsw-1, vsw-2"
SecureGroup = "sg-1"
ClusterName = "home"
AccessKey = "the-access-key"
SecretKey = "the-secret-key"
`

const yamlConfig = `
# more
region: cn-hangzhou
operatingSystem: Linux
cpu: "20"
memory: 100Gi
pods: "50"
vSwitch: vsw-1, vsw-2
secureGroup: sg-1
clusterName: home
accessKey: the-access-key
secretKey: the-secret-key
`

func TestConfigFileIsTOMLOrYAML(t *testing.T) {
	for name, text := range map[string]string{"TOML": tomlConfig, "YAML": yamlConfig} {
		c, err := ParseConfig([]byte(text))
		if err == nil {
			err = c.Complete()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := []any{c.Region, c.OperatingSystem, c.CPU.String(), c.Memory.String(), c.Pods.String(), c.VSwitch, c.SecurityGroup, c.ClusterName, c.AccessKey.Reveal(), c.SecretKey.Reveal()}
		want := []any{"cn-hangzhou", "linux", "20", "100Gi", "50", "vsw-1,vsw-2", "sg-1", "home", "the-access-key", "the-secret-key"}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: setting %d is %v, want %v", name, i, got[i], want[i])
			}
		}
	}
}

func TestConfigFileIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		`Regoin = "x"`:                   "Regoin",
		"regoin: x":                      "regoin",
		`CPU = "many"`:                   "cpu",
		"cacheFor: soon":                 "soon",
		`SecretKey = "hunter2`:           "no YAML",
		"[hunter2]":                      "array",
		"accessKey: {hunter2: 1}":        "accessKey",
		"Region = \"a\"\nRegion = \"b\"": "already set",
		"cpu: 1\n---\nmemory: 1Gi":       "several YAML documents",
	} {
		_, err := ParseConfig([]byte(text))
		if err == nil || !errdefs.IsInvalidInput(err) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("%s: the error is %v, want one of class InvalidInput that names %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// All mistakes are named at once, in each format.
func TestConfigFileNamesAllMistakes(t *testing.T) {
	for name, text := range map[string]string{
		"TOML": "Regoin = \"x\"\nCPU = \"many\"\nMemory = \"much\"\nCacheFor = \"soon\"\n",
		"YAML": "Regoin: x\ncpu: many\nmemory: much\ncacheFor: soon\n",
		"JSON": `{"Regoin": "x", "cpu": "many", "memory": "much", "cacheFor": "soon"}`,
	} {
		_, err := ParseConfig([]byte(text))
		if !errdefs.IsInvalidInput(err) || !strings.HasPrefix(err.Error(), "eci config: 4 mistakes: ") {
			t.Fatalf("%s: the error is %v, want four mistakes", name, err)
		}
		for _, mistake := range []string{`unknown field "regoin": leave it out, or write "region"`, "cpu: ", "memory: ", "cachefor: "} {
			if !strings.Contains(strings.ToLower(err.Error()), mistake) {
				t.Errorf("%s: the error does not have %s: %v", name, mistake, err)
			}
		}
	}
}

// Numbers need no quotes.
func TestQuantitiesMayBeNumbers(t *testing.T) {
	for _, text := range []string{
		"cpu: 1000\nmemory: 1099511627776\npods: 50",
		"cpu: \"1000\"\nmemory: 1Ti\npods: 5e1",
		"CPU = 1000\nMemory = 1099511627776\nPods = 50.0",
		`{"cpu": 1000, "memory": "1Ti", "pods": 50}`,
	} {
		c, err := ParseConfig([]byte(text))
		if err != nil || c.CPU.Value() != 1000 || c.Memory.Value() != 1<<40 || c.Pods.Value() != 50 {
			t.Errorf("%q: the quotas are %s, %s and %s, %v", text, c.CPU.String(), c.Memory.String(), c.Pods.String(), err)
		}
	}
	for text, want := range map[string]string{"cpu: true": "cpu", "pods: [1]": "pods", "Memory = false": "memory"} {
		if _, err := ParseConfig([]byte(text)); !errdefs.IsInvalidInput(err) || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%q: the error is %v, want one that names %s", text, err, want)
		}
	}
	if c, err := ParseConfig([]byte("cpu:\nregion: x")); err != nil || !c.CPU.IsZero() {
		t.Errorf("without a value the CPU is %s, %v", c.CPU.String(), err)
	}
}

func TestEnvironmentGoesBeforeTheFile(t *testing.T) {
	c, err := ParseConfig([]byte(tomlConfig))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{EnvUpdateFiles: "true", EnvClusterDNS: "10.0.0.10, 10.0.0.11", EnvRegion: "cn-beijing", EnvQuotaCPU: "7", EnvVSwitch: "vsw-9", EnvSecretKey: "another"}
	if err := c.Merge(func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if c.Region != "cn-beijing" || c.CPU.String() != "7" || c.VSwitch != "vsw-9" || c.SecretKey.Reveal() != "another" || c.ClusterName != "home" || !c.UpdateFiles || len(c.ClusterDNS) != 2 {
		t.Errorf("the config is %+v", c)
	}
	if err := c.Merge(func(string) string { return "x" }); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "ECI_QUOTA") {
		t.Errorf("a quota that is no quantity gives %v", err)
	}
}

func TestQuotasHaveDefaults(t *testing.T) {
	c := testConfig("")
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.CPU.String() != "1k" && c.CPU.String() != "1000" || c.Memory.String() != "4Ti" || c.Pods.Value() != 1000 {
		t.Errorf("the quotas are %s, %s and %s", c.CPU.String(), c.Memory.String(), c.Pods.String())
	}
}

func TestMissingSettingsAreNamedTogether(t *testing.T) {
	var c Config
	err := c.Complete()
	if !errdefs.IsInvalidInput(err) {
		t.Fatalf("the error is %v", err)
	}
	for _, name := range []string{EnvClusterName, EnvRegion, EnvAccessKey, EnvSecretKey, EnvSecurityGroup, EnvVSwitch} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// A setting that is read from a file, of a Secret say, may end in a newline. A list of
// separators is empty.
func TestWhiteSpaceIsNoSetting(t *testing.T) {
	c := testConfig("")
	c.SecretKey, c.Region, c.VSwitch = "the-secret-key\n", " cn-test ", " , "
	err := c.Complete()
	if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "missing "+EnvVSwitch+" (VSwitch):") {
		t.Errorf("without a vSwitch the error is %v", err)
	}
	c.VSwitch = "vsw-1,\n vsw-2"
	if err := c.Complete(); err != nil || c.VSwitch != "vsw-1,vsw-2" || c.SecretKey.Reveal() != "the-secret-key" || c.Region != "cn-test" {
		t.Errorf("the config is %+v, with the key %q: %v", c, c.SecretKey.Reveal(), err)
	}
}

// If the node has no GPUs, the scheduler places no pods on it that request some.
func TestGPUsOfTheNode(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "GPU = 8": 8, "gpu: \"8\"": 8} {
		c, err := ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, 0, func(config *Config) { config.GPU = c.GPU })
		has, ok := r.home.Node.Status.Allocatable[resourceGPU]
		if has.Value() != want || ok != (want > 0) {
			t.Errorf("%q: the node has %s GPUs, want %d", text, has.String(), want)
		}
	}
	c := testConfig("")
	c.GPU.Sub(resource.MustParse("1"))
	if err := c.Complete(); !errdefs.IsInvalidInput(err) {
		t.Errorf("less than none gives %v", err)
	}
}

func TestPrintedConfigShowsNoSecrets(t *testing.T) {
	c := testConfig("")
	c.SecretKey, c.AccessKey = "hunter2", "hunter2-id"
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprint(c), fmt.Sprintf("%+v %#v", c, c), fmt.Sprintf("%q %x", c.SecretKey, c.SecretKey), string(text)} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("it shows the secret: %s", shown)
		}
	}
}
