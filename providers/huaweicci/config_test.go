package huaweicci

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// older are the environment variables of the older provider, which had a typing error in one
// of its names.
var older = map[string]string{"CCI_APP_KEP": "key", "CCI_APP_SECRET": "hush"}

// The configuration file that the older provider published is used as it is.
func TestConfigOfTheOlderProvider(t *testing.T) {
	data, err := os.ReadFile("testdata/cci.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	c.Merge(func(name string) string { return older[name] })
	if err := errors.Join(c.Check(), c.complete(c.checkAccess())); err != nil {
		t.Fatal(err)
	}
	if c.keys.access != "key" || c.keys.secret != "hush" || c.API != APIv1 || c.Endpoint != "https://cci.cn-north-1.myhuaweicloud.com" || c.Kubernetes.Namespaces.Name != "default" {
		t.Errorf("it is %+v", c)
	}
	capacity := c.Kubernetes.Capacity.Resources
	if cpu, memory, pods := capacity[corev1.ResourceCPU], capacity[corev1.ResourceMemory], capacity[corev1.ResourcePods]; cpu.String()+" "+memory.String()+" "+pods.String() != "20 100Gi 20" {
		t.Errorf("the capacity is %v", capacity)
	}
	c.Merge(func(name string) string {
		return map[string]string{"CCI_APP_KEY": "right", "CCI_APP_KEP": "wrong"}[name]
	})
	if c.keys.access != "right" {
		t.Errorf("of two keys %s was taken", c.keys.access)
	}
}

func TestConfigMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"Proyect: x":                              "Proyect",
		"API: v3":                                 "not one of v1 and v2",
		`OperatingSystem = "Windows"`:             "Linux only",
		"Project: Not_a_name":                     "name of a namespace",
		"Endpoint: http://insecure.example.com":   "https://",
		"Endpoint: https://host.example.com/path": "https://",
		"CPU: many":                               `CPU: "many" is no quantity`,
		"Size: 3.00_3.0":                          "Size:",
		"Network: {SubnetID: s}":                  "Network: set",
		"ProjectID: p\nNetwork: {SubnetID: s, SecurityGroup: g, DomainID: d}": "CCI 1 needs VPC",
		"IAM: {User: robot, Domain: account}":                                 "either",
		"Kubernetes: {capacity: {resources: {cpu: 3}}}":                       "follows from CPU",
		"Kubernetes: {cluster: other}":                                        "follow from",
		"Kubernetes: {namespaces: {mapping: same}}":                           "follow from",
		"Kubernetes: {remote: {inCluster: true}}":                             "follow from",
		"Kubernetes: {stats: kubelets}":                                       "a service has no nodes",
		"Kubernetes: {storageClasses: {a: b}}":                                "a service has no nodes",
		"Kubernetes: {services: true}":                                        "namespaces.mapping: fixed",
		"Kubernetes: {evicted: perhaps}":                                      "evicted",
	} {
		c, err := ParseConfig([]byte(text))
		if err == nil {
			c.Merge(func(name string) string { return older[name] })
			_, err = New(t.Context(), homeConfig(), c)
		}
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := (Config{Kubernetes: kubernetes.Config{Evicted: "perhaps"}}).Check(); !errdefs.IsInvalidInput(err) {
		t.Errorf("checked with %v", err)
	}
	for what, environment := range map[string]map[string]string{
		"none": {}, "no secret": {"CCI_APP_KEY": "k"}, "no key": {"CCI_APP_SECRET": "hush"},
	} {
		var c Config
		c.Merge(func(name string) string { return environment[name] })
		if err := c.complete(c.checkAccess()); !errdefs.IsInvalidInput(err) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := Config{IAM: IAM{User: "robot", Password: "hush"}}
	if err := c.complete(c.checkAccess()); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "Domain") || strings.Contains(fmt.Sprintf("%+v %v", c, err), "hush") {
		t.Errorf("a user without a domain: %v", err)
	}
}

// Resources that have no setting of their own are kept.
func TestFurtherResources(t *testing.T) {
	c, err := ParseConfig([]byte("CPU: 7\nKubernetes: {capacity: {resources: {nvidia.com/gpu: 2}}}"))
	if err == nil {
		err = c.complete(nil)
	}
	has := c.Kubernetes.Capacity.Resources
	if gpus := has["nvidia.com/gpu"]; err != nil || gpus.Value() != 2 || has.Cpu().Value() != 7 {
		t.Errorf("%v, %v", has, err)
	}
}
