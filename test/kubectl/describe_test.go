//go:build integration

package kubectl

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestDescribe checks what a person reads first.
func TestDescribe(t *testing.T) {
	n, u := startNode(t), user{namespace: newNamespace(t)}
	container := corev1.Container{Name: "c", Image: "registry.example/image:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	container.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	pod := runPod(t, u.namespace, "pod", n.podSpec(container), nil)
	address := nodeAddress(t)
	eventually(t, "the pod has its event", func() (bool, string) { // which comes by itself
		events := u.run(t, "get", "events")
		return strings.Contains(events, "ProviderCreateSuccess"), events
	})

	t.Run("node", func(t *testing.T) {
		wantAll(t, u.run(t, "describe", "node", n.name),
			`(?m)^Name: +`+n.name+`$`,
			`Ready +True +.* KubeletReady +`,
			`MemoryPressure +False +`,
			`InternalIP: +`+address+`\n`,
			`(?m)^Lease:\n +HolderIdentity: +`+n.name,
			`RenewTime: +\w{3}, \d`,
			`Capacity:\n +cpu: +20\n`,
			`Allocatable:\n +cpu: +20\n`,
			`Kubelet Version: +v\d+\.`,
			`Operating System: +linux\n`,
			`Architecture: +\w+\n`,
			`Non-terminated Pods: +\(1 in total\)`,
			`(?m)^  `+u.namespace+` +pod +250m \(1%\) +0 \(0%\) +64Mi \(0%\) +0 \(0%\)`,
		)
	})
	t.Run("pod", func(t *testing.T) {
		wantAll(t, u.run(t, "describe", "pod", "pod"),
			`(?m)^Name: +pod$`,
			`(?m)^Node: +`+n.name+`/`+address+`$`,
			`(?m)^Start Time: +\w{3}, \d`,
			`(?m)^Status: +Running$`,
			`(?m)^IP: +`+regexp.QuoteMeta(pod.Status.PodIP)+`$`,
			`Container ID: +mock://\w+`,
			`Image: +registry\.example/image:1\n`,
			`State: +Running\n +Started: +\w{3}, \d`,
			`Ready: +True\n`,
			`Restart Count: +0\n`,
			`PodReadyToStartContainers +True`,
			`Initialized +True`,
			`ContainersReady +True`,
			`PodScheduled +True`,
			`QoS Class: +Burstable`,
			`Normal +ProviderCreateSuccess`,
		)
	})
	t.Run("wide", func(t *testing.T) {
		wantAll(t, u.run(t, "get", "pods", "-o", "wide"),
			`(?m)^pod +1/1 +Running +0 +\d+s +`+regexp.QuoteMeta(pod.Status.PodIP)+` +`+n.name+` +<none> +<none>`)
		wantAll(t, u.run(t, "get", "node", n.name, "-o", "wide"),
			`(?m)^`+n.name+` +Ready +\S+ +\d+s +v\d\S+ +`+address+` `)
	})
}

// TestNodeProxy asks the node through the API server, as an administrator.
func TestNodeProxy(t *testing.T) {
	n, u := startNode(t), user{namespace: newNamespace(t)}
	runPod(t, u.namespace, "pod", n.podSpec(corev1.Container{Name: "c", Image: "test"}), nil)
	for path, want := range map[string]string{
		"healthz":          `^ok$`,
		"pods":             `"kind":"PodList".*"name":"pod"`,
		"runningpods/":     `"kind":"PodList".*"name":"pod"`,
		"stats/summary":    `"nodeName":\s*"` + n.name + `"`,
		"metrics/resource": `container_memory_working_set_bytes\{container="c",namespace="` + u.namespace + `",pod="pod"\}`,
		"containerLogs/" + u.namespace + "/pod/c?tailLines=1": `^[^\n]*pod[^\n]*\n$`,
	} {
		out := u.run(t, "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/"+path)
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %.500q does not match %s", path, out, want)
		}
	}
	_, stderr, code := u.result(t, nil, "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/nothing")
	if code == 0 || !strings.Contains(stderr, "the server could not find the requested resource") {
		t.Errorf("of a path that is not there: code %d, %q", code, stderr)
	}
}

func wantAll(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("nothing matches %s", pattern)
		}
	}
	if t.Failed() {
		t.Logf("kubectl printed\n%s", text)
	}
}
