package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// See https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/.
func TestContainerResources(t *testing.T) {
	res := func(requests, limits corev1.ResourceList) func(*corev1.Pod, *corev1.Container) {
		return func(_ *corev1.Pod, app *corev1.Container) {
			app.Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
		}
	}
	for _, test := range []struct {
		what string
		edit func(*corev1.Pod, *corev1.Container)
		node func(*Node)
		want string
	}{
		{what: "nothing asked for", want: `{"cpuPeriod": "100000", "cpuShares": "2", "oomScoreAdj": "1000"}`},
		{what: "requests", edit: res(quantities("cpu", "250m", "memory", "1Gi"), nil),
			want: `{"cpuPeriod": "100000", "cpuShares": "256", "oomScoreAdj": "750"}`},
		{what: "limits", edit: res(quantities("cpu", "1", "memory", "1Gi"), quantities("cpu", "2", "memory", "2Gi")),
			want: `{"cpuPeriod": "100000", "cpuQuota": "200000", "cpuShares": "1024", "memoryLimitInBytes": "2147483648", "oomScoreAdj": "750"}`},
		{what: "the limit is the request without one", edit: res(nil, quantities("cpu", "500m")),
			want: `{"cpuPeriod": "100000", "cpuQuota": "50000", "cpuShares": "512", "oomScoreAdj": "999"}`},
		{what: "a request of zero", edit: res(quantities("cpu", "0"), quantities("cpu", "500m")),
			want: `{"cpuPeriod": "100000", "cpuQuota": "50000", "cpuShares": "2", "oomScoreAdj": "999"}`},
		{what: "the least", edit: res(quantities("cpu", "1m"), quantities("cpu", "1m")),
			want: `{"cpuPeriod": "100000", "cpuQuota": "1000", "cpuShares": "2", "oomScoreAdj": "999"}`},
		{what: "the most", edit: res(quantities("cpu", "1k"), nil),
			want: `{"cpuPeriod": "100000", "cpuShares": "262144", "oomScoreAdj": "999"}`},
		{what: "Guaranteed", edit: res(quantities("cpu", "1", "memory", "1Gi"), quantities("cpu", "1", "memory", "1Gi")),
			want: `{"cpuPeriod": "100000", "cpuQuota": "100000", "cpuShares": "1024", "memoryLimitInBytes": "1073741824", "oomScoreAdj": "-997"}`},
		{what: "without quota", edit: res(nil, quantities("cpu", "1")), node: func(n *Node) { n.NoCPUQuota = true },
			want: `{"cpuShares": "1024", "oomScoreAdj": "999"}`},
		{what: "limits of the pod as a whole (KEP-2837)", edit: func(pod *corev1.Pod, app *corev1.Container) {
			pod.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "2", "memory", "2Gi", "example.com/x", "1")}
			app.Resources.Limits = quantities("memory", "1Gi")
		}, want: `{"cpuPeriod": "100000", "cpuQuota": "200000", "cpuShares": "2", "memoryLimitInBytes": "1073741824", "oomScoreAdj": "999"}`},
		{what: "huge pages", edit: res(quantities("hugepages-2Mi", "100Mi"), quantities("hugepages-2Mi", "100Mi")),
			node: func(n *Node) { n.HugePageSizes = []string{"2MB", "1GB"} },
			want: `{"cpuPeriod": "100000", "cpuShares": "2", "oomScoreAdj": "1000",
				"hugepageLimits": [{"pageSize": "1GB"}, {"pageSize": "2MB", "limit": "104857600"}]}`},
		{what: "out of memory together", edit: res(nil, quantities("memory", "1Gi")), node: func(n *Node) { n.OOMGroup = true },
			want: `{"cpuPeriod": "100000", "cpuShares": "2", "memoryLimitInBytes": "1073741824", "oomScoreAdj": "999", "unified": {"memory.oom.group": "1"}}`},
		{what: "no swap", node: func(n *Node) { n.NoSwap = true },
			want: `{"cpuPeriod": "100000", "cpuShares": "2", "oomScoreAdj": "1000", "unified": {"memory.swap.max": "0"}}`},
		{what: "no swap, out of memory together", node: func(n *Node) { n.NoSwap, n.OOMGroup = true, true },
			want: `{"cpuPeriod": "100000", "cpuShares": "2", "oomScoreAdj": "1000", "unified": {"memory.oom.group": "1", "memory.swap.max": "0"}}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			node := testNode
			if test.node != nil {
				test.node(&node)
			}
			wantJSON(t, containerOf(t, node, podOf(test.edit), ContainerOptions{}).Linux.Resources, test.want)
		})
	}
}

func TestPageSize(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-16Gi": "16GB", "hugepages-1024Mi": "1GB",
		"hugepages-512": "512B", "hugepages-": "", "hugepages-x": "", "hugepages-0": "", "memory": "",
	} {
		got, ok := PageSize(name)
		equal(t, string(name), got, want)
		equal(t, string(name), ok, want != "")
	}
}

// A resize (KEP-1287) asks for what a new container would get.
func TestUpdates(t *testing.T) {
	pod := podOf(func(pod *corev1.Pod, app *corev1.Container) {
		pod.Status.QOSClass = corev1.PodQOSBurstable
		pod.Spec.Overhead = quantities("memory", "64Mi")
		app.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "2"), Limits: quantities("cpu", "2", "memory", "1Gi")}
	})
	wantJSON(t, testNode.UpdateContainer(pod, &pod.Spec.Containers[0], "id1"), `{"containerId": "id1", "linux":
		{"cpuPeriod": "100000", "cpuQuota": "200000", "cpuShares": "2048", "memoryLimitInBytes": "1073741824", "oomScoreAdj": "999"}}`)
	together := testNode
	together.OOMGroup = true
	wantJSON(t, together.UpdateContainer(pod, &pod.Spec.Containers[0], "id1"), `{"containerId": "id1", "linux":
		{"cpuPeriod": "100000", "cpuQuota": "200000", "cpuShares": "2048", "memoryLimitInBytes": "1073741824", "oomScoreAdj": "999",
		"unified": {"memory.oom.group": "1"}}}`)
	wantJSON(t, testNode.UpdateSandbox(pod, "box1"), `{"podSandboxId": "box1",
		"overhead": {"cpuPeriod": "100000", "cpuShares": "2", "memoryLimitInBytes": "67108864"},
		"resources": {"cpuPeriod": "100000", "cpuQuota": "200000", "cpuShares": "2048", "memoryLimitInBytes": "1073741824"}}`)
}
