package mock_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func TestParseConfig(t *testing.T) {
	data := []byte(`{
	  "vk-mock-1": {
	    "cpu": "2", "memory": "32Gi", "pods": "128", "ephemeralStorage": "10Gi", "others": {"nvidia.com/gpu": "4"},
	    "providerID": "mock://1", "hostIP": "10.0.0.7", "kubeletPort": 10250, "operatingSystem": "windows", "architecture": "arm64",
	    "podCIDR": "10.7.0.0/16", "startDelay": "1s", "startJitter": "2s", "readyDelay": "3s", "stopDelay": "4s",
	    "completeJobs": false, "jobDuration": "0s"
	  },
	  "vk-mock-2": {}
	}`)
	c, err := mock.ParseConfig(data, "vk-mock-1")
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeName != "vk-mock-1" || c.CPU.String() != "2" || c.Memory.String() != "32Gi" || c.Pods.String() != "128" ||
		c.EphemeralStorage.String() != "10Gi" || c.ProviderID != "mock://1" || c.HostIP != "10.0.0.7" || c.KubeletPort != 10250 ||
		c.OperatingSystem != "windows" || c.Architecture != "arm64" || c.PodCIDR != "10.7.0.0/16" || !c.KeepJobs || c.JobDuration >= 0 ||
		c.StartDelay != time.Second || c.StartJitter != 2*time.Second || c.ReadyDelay != 3*time.Second || c.StopDelay != 4*time.Second {
		t.Errorf("got %+v", c)
	}
	if gpus := c.Others["nvidia.com/gpu"]; gpus.String() != "4" {
		t.Errorf("others are %v", c.Others)
	}
	for _, tc := range []struct{ data, node string }{{string(data), "vk-mock-2"}, {string(data), "unknown"}, {"", "unknown"}, {"{}", "unknown"}} {
		c, err := mock.ParseConfig([]byte(tc.data), tc.node)
		if err != nil {
			t.Fatal(err)
		}
		if c.NodeName != tc.node || c.CPU.String() != "20" || c.Memory.String() != "100Gi" || c.Pods.String() != "1k" ||
			c.OperatingSystem != "linux" || c.KeepJobs || c.JobDuration != time.Second {
			t.Errorf("defaults of %s are %+v", tc.node, c)
		}
	}
}

func TestParseConfigIsStrict(t *testing.T) {
	for data, want := range map[string]string{
		`{"n": {"cpus": "2"}}`:                       `unknown field "n.cpus"`,
		`{"n": {"cpu": "two"}}`:                      `mock config of node "n": cpu: "two" is no quantity`,
		`{"n": {"memory": "-1Gi"}}`:                  `memory: -1Gi is negative`,
		`{"other": {"pods": "x"}}`:                   `mock config of node "other": pods: "x" is no quantity`,
		`{"n": {"others": {"a/b": "?"}}}`:            `others: a/b: "?" is no quantity`,
		`{"n": {"others": {"a/b": "-1"}}}`:           `others: a/b: -1 is negative`,
		`{"n": {"startDelay": "soon"}}`:              `startDelay: "soon" is no duration`,
		`{"n": {"stopDelay": "-1s"}}`:                `stopDelay: -1s is negative`,
		`{"n": {"hostIP": "here"}}`:                  `hostIP: `,
		`{"n": {"podCIDR": "10.0.0.0"}}`:             `podCIDR: `,
		`{"n": {"kubeletPort": 70000}}`:              `kubeletPort: 70000 is no port`,
		`{"n": {"cpu": "1", "cpu": "2"}}`:            `duplicate field "n.cpu"`,
		`{"n": {}} {"m": {}}`:                        `mock config`,
		`[]`:                                         `mock config`,
		`{"n": `:                                     `mock config`,
		`{"n": {"cpu": {"a": "b"}}}`:                 `cpu`,
		`{"n": {"cpu": "x", "memory": "y"}}`:         `memory: "y" is no quantity`,
		`{"n": {"jobDuration": "1 day"}}`:            `jobDuration: "1 day" is no duration`,
		`{"n": {"completeJobs": "perhaps"}}`:         `completeJobs`,
		`{"n": {"providerID": "a", "unknown": "b"}}`: `unknown field "n.unknown"`,
	} {
		_, err := mock.ParseConfig([]byte(data), "n")
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", data, err, want)
		}
	}
	if _, err := mock.New(mock.Config{HostIP: "here"}); !errdefs.IsInvalidInput(err) {
		t.Errorf("New: %v", err)
	}
}

func TestConfigureNode(t *testing.T) {
	c, err := mock.ParseConfig([]byte(`{"n": {"cpu": "2", "others": {"nvidia.com/gpu": "4"}, "providerID": "mock://n", "kubeletPort": 10250}}`), "n")
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, c)
	n := &corev1.Node{}
	n.Labels = map[string]string{"mine": "stays"}
	n.Status.NodeInfo.KubeletVersion = "stays"
	p.ConfigureNode(ctx, n)
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for name, want := range map[corev1.ResourceName]string{
			"cpu": "2", "memory": "100Gi", "pods": "1k", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "4",
		} {
			if q := list[name]; q.String() != want {
				t.Errorf("%s is %s, want %s", name, q.String(), want)
			}
		}
	}
	conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range n.Status.Conditions {
		conditions[c.Type] = c.Status
		if c.Reason == "" || c.Message == "" || c.LastHeartbeatTime.IsZero() {
			t.Errorf("condition %+v", c)
		}
	}
	for kind, want := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: "True", corev1.NodeMemoryPressure: "False", corev1.NodeDiskPressure: "False", corev1.NodePIDPressure: "False",
	} {
		if conditions[kind] != want {
			t.Errorf("%s is %q", kind, conditions[kind])
		}
	}
	if n.Spec.ProviderID != "mock://n" || n.Labels["mine"] != "stays" || n.Labels["kubernetes.io/os"] != "linux" ||
		n.Status.NodeInfo.KubeletVersion != "stays" || n.Status.NodeInfo.OperatingSystem != "linux" ||
		n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || n.Status.Addresses[0].Address != "127.0.0.1" {
		t.Errorf("node is %+v", n)
	}
}
