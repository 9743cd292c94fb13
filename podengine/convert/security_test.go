package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// security is a pod with the two security contexts.
func security(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) *corev1.Pod {
	return podOf(func(p *corev1.Pod, app *corev1.Container) {
		p.Spec.SecurityContext, app.SecurityContext = pod, container
	})
}

// The rules are those of SecurityContext and PodSecurityContext in the API.
func TestContainerSecurity(t *testing.T) {
	for _, test := range []struct {
		what string
		pod  *corev1.Pod
		want string // besides namespaces, seccomp and user
	}{
		{"nothing asked for", security(nil, nil), `{}`},
		{"capabilities", security(nil, &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}}}),
			`{"capabilities": {"addCapabilities": ["NET_ADMIN"], "dropCapabilities": ["ALL"]}}`},
		{"privileged", security(nil, &corev1.SecurityContext{Privileged: new(true)}), `{"privileged": true}`},
		{"read-only root", security(nil, &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)}), `{"readonlyRootfs": true}`},
		{"no escalation", security(nil, &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}), `{"noNewPrivs": true}`},
		{"escalation", security(nil, &corev1.SecurityContext{AllowPrivilegeEscalation: new(true)}), `{}`},
		{"SELinux of the pod", security(&corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0", Type: "t"}}, nil),
			`{"selinuxOptions": {"level": "s0", "type": "t"}}`},
		{"SELinux of the container as a whole", security(
			&corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0", Type: "t"}},
			&corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s1"}}),
			`{"selinuxOptions": {"level": "s1"}}`},
		{"groups", security(&corev1.PodSecurityContext{SupplementalGroups: []int64{5}, FSGroup: new(int64(6)), RunAsGroup: new(int64(7))}, nil),
			`{"supplementalGroups": ["5", "6"], "runAsGroup": {"value": "7"}}`},
		{"group of the container", security(&corev1.PodSecurityContext{RunAsGroup: new(int64(7))}, &corev1.SecurityContext{RunAsGroup: new(int64(8))}),
			`{"runAsGroup": {"value": "8"}}`},
		{"groups of the pod only (KEP-3619)", security(&corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}, nil),
			`{"supplementalGroupsPolicy": "Strict"}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			got := containerOf(t, testNode, test.pod, ContainerOptions{}).Linux.SecurityContext
			got.NamespaceOptions, got.Seccomp, got.RunAsUser = nil, nil, nil
			got.MaskedPaths, got.ReadonlyPaths = nil, nil
			wantJSON(t, got, test.want)
		})
	}
}

// KEP-4265.
func TestProcMount(t *testing.T) {
	for _, test := range []struct {
		mount  *corev1.ProcMountType
		masked bool
	}{{nil, true}, {new(corev1.DefaultProcMount), true}, {new(corev1.UnmaskedProcMount), false}} {
		pod := security(nil, &corev1.SecurityContext{ProcMount: test.mount})
		got := containerOf(t, testNode, pod, ContainerOptions{}).Linux.SecurityContext
		equal(t, "masked", len(got.MaskedPaths) > 0, test.masked)
		equal(t, "read-only", len(got.ReadonlyPaths) > 0, test.masked)
	}
}

func TestUser(t *testing.T) {
	numeric := &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 101}}
	root := &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}
	named := &runtimeapi.Image{Username: "nginx"}
	const where = ` (pod: "web_ns(u1)", container: app)`
	const asRoot = "container has runAsNonRoot and image will run as root" + where
	for _, test := range []struct {
		what      string
		pod       corev1.PodSecurityContext
		container corev1.SecurityContext
		image     *runtimeapi.Image
		id        int64
		name      string
		err       string
	}{
		{what: "the image's number", image: numeric, id: 101},
		{what: "the image's name", image: named, id: -1, name: "nginx"},
		{what: "an image without a user is root's", image: &runtimeapi.Image{}, id: 0},
		{what: "an unknown image is root's", id: 0},
		{what: "the pod's", pod: corev1.PodSecurityContext{RunAsUser: new(int64(5))}, image: named, id: 5},
		{what: "the container's", pod: corev1.PodSecurityContext{RunAsUser: new(int64(5))},
			container: corev1.SecurityContext{RunAsUser: new(int64(6))}, image: named, id: 6},
		{what: "not root, and is not", container: corev1.SecurityContext{RunAsNonRoot: new(true)}, image: numeric, id: 101},
		{what: "not root, by runAsUser", container: corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(6))}, image: root, id: 6},
		{what: "not root, but the image is", container: corev1.SecurityContext{RunAsNonRoot: new(true)}, image: root, err: asRoot},
		{what: "not root, but the image names none", container: corev1.SecurityContext{RunAsNonRoot: new(true)}, image: &runtimeapi.Image{}, err: asRoot},
		{what: "not root, says the pod", pod: corev1.PodSecurityContext{RunAsNonRoot: new(true)}, image: root, err: asRoot},
		{what: "the container may be", pod: corev1.PodSecurityContext{RunAsNonRoot: new(true)},
			container: corev1.SecurityContext{RunAsNonRoot: new(false)}, image: root, id: 0},
		{what: "not root, who knows", container: corev1.SecurityContext{RunAsNonRoot: new(true)}, image: named,
			err: "container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root" + where},
		{what: "not root, and runAsUser is", container: corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}, image: numeric,
			err: "container's runAsUser breaks non-root policy" + where},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := security(&test.pod, &test.container)
			config, err := testNode.Container(pod, &pod.Spec.Containers[0], ContainerOptions{Image: test.image})
			wantError(t, err, test.err)
			if err != nil {
				return
			}
			got := config.Linux.SecurityContext
			equal(t, "name", got.RunAsUsername, test.name)
			if test.id < 0 {
				equal(t, "has a number", got.RunAsUser != nil, false)
			} else {
				equal(t, "number", got.RunAsUser.GetValue(), test.id)
				equal(t, "has a number", got.RunAsUser != nil, true)
			}
		})
	}
}

func TestContainerNamespaces(t *testing.T) {
	for _, test := range []struct {
		what   string
		edit   func(*corev1.Pod, *corev1.Container)
		target string
		want   string
	}{
		{"its own processes", nil, "", `{"pid": "CONTAINER"}`},
		{"those of another (KEP-277)", nil, "id1", `{"pid": "TARGET", "targetId": "id1"}`},
		{"shared processes need no target", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = new(true) }, "id1", `{}`},
		{"nor do the host's", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostPID = true }, "id1", `{"pid": "NODE"}`},
		{"as the pod's", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostNetwork, p.Spec.HostIPC = true, true }, "",
			`{"network": "NODE", "ipc": "NODE", "pid": "CONTAINER"}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			config := containerOf(t, testNode, podOf(test.edit), ContainerOptions{TargetID: test.target})
			wantJSON(t, config.Linux.SecurityContext.NamespaceOptions, test.want)
		})
	}
	pod := podOf(func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(false) })
	_, err := testNode.Container(pod, &pod.Spec.Containers[0], ContainerOptions{})
	wantError(t, err, "the pod has hostUsers: false, but user namespaces are not supported on this node")
}
