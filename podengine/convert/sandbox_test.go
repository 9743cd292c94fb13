package convert

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

func TestSandbox(t *testing.T) {
	pod := podOf(func(pod *corev1.Pod, app *corev1.Container) {
		pod.Labels = map[string]string{"app": "web", "io.kubernetes.pod.name": "another"}
		pod.Annotations = map[string]string{"note": "x", NodeAnnotation: "another"}
		pod.Spec.Overhead = quantities("cpu", "100m", "memory", "64Mi")
		app.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: "192.0.2.1"}}
		app.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "500m"), Limits: quantities("cpu", "1", "memory", "128Mi")}
	})
	config := sandboxOf(t, testNode, pod, SandboxOptions{
		Attempt:      2,
		DNS:          podspec.ResolvConf{Nameservers: []string{"10.96.0.10"}, Searches: []string{"a"}, Options: []string{"ndots:5"}},
		CgroupParent: "/kubepods/podu1",
	})
	wantJSON(t, config, `{
		"metadata": {"name": "web", "uid": "u1", "namespace": "ns", "attempt": 2},
		"hostname": "web",
		"logDirectory": "/logs/ns_web_u1",
		"dnsConfig": {"servers": ["10.96.0.10"], "searches": ["a"], "options": ["ndots:5"]},
		"portMappings": [{"containerPort": 80, "hostPort": 8080, "hostIp": "192.0.2.1"}],
		"labels": {"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u1"},
		"annotations": {"note": "x", "virtual-kubelet.io/node": "vk"},
		"linux": {
			"cgroupParent": "/kubepods/podu1",
			"securityContext": {"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}},
			"overhead": {"cpuPeriod": "100000", "cpuQuota": "10000", "cpuShares": "102", "memoryLimitInBytes": "67108864"},
			"resources": {"cpuPeriod": "100000", "cpuQuota": "100000", "cpuShares": "512", "memoryLimitInBytes": "134217728"}
		}
	}`)
	if pod.Labels["io.kubernetes.pod.name"] != "another" {
		t.Error("the pod was changed")
	}
}

func TestSandboxHostname(t *testing.T) {
	for _, test := range []struct {
		what       string
		edit       func(*corev1.Pod, *corev1.Container)
		want, fail string
	}{
		{"spec.hostname", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Hostname = "h" }, "h", ""},
		{"cut", func(p *corev1.Pod, _ *corev1.Container) { p.Name = strings.Repeat("a", 100) }, strings.Repeat("a", 63), ""},
		{"FQDN", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "s", new(true)
		}, "web.s.ns.svc.cluster.local", ""},
		{"too long", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("s", 60), new(true)
		}, "", "failed to construct FQDN from Pod hostname and cluster domain, FQDN web." + strings.Repeat("s", 60) +
			".ns.svc.cluster.local is too long (64 characters is the max, 85 characters requested)"},
		{"the host's", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostNetwork = true }, "", ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			config, err := testNode.Sandbox(podOf(test.edit), SandboxOptions{})
			wantError(t, err, test.fail)
			equal(t, "host name", config.GetHostname(), test.want)
		})
	}
}

func TestPortMappings(t *testing.T) {
	ports := []corev1.ContainerPort{
		{ContainerPort: 80, HostPort: 8080},
		{ContainerPort: 53, HostPort: 53, Protocol: corev1.ProtocolUDP, HostIP: "::1"},
		{ContainerPort: 9, HostPort: 9, Protocol: corev1.ProtocolSCTP},
		{ContainerPort: 81},
	}
	const three = `[{"containerPort": 80, "hostPort": 8080},
		{"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIp": "::1"},
		{"containerPort": 9, "hostPort": 9, "protocol": "SCTP"}]`
	for _, test := range []struct {
		what string
		edit func(*corev1.Pod, *corev1.Container)
		want string
	}{
		{"those with a host port", func(_ *corev1.Pod, app *corev1.Container) { app.Ports = ports }, three},
		{"of sidecars (KEP-753)", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.InitContainers = []corev1.Container{{Name: "s", Ports: ports, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		}, three},
		{"not of init containers", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Ports: ports}}
		}, `[]`},
		{"not on the host's network", func(p *corev1.Pod, app *corev1.Container) { p.Spec.HostNetwork, app.Ports = true, ports }, `[]`},
	} {
		t.Run(test.what, func(t *testing.T) {
			got := &runtimeapi.PodSandboxConfig{PortMappings: portMappings(podOf(test.edit))}
			want := `{"portMappings": ` + test.want + `}`
			if test.want == `[]` {
				want = `{}`
			}
			wantJSON(t, got, want)
		})
	}
}

// The names are those of sysctl(8).
func TestSysctls(t *testing.T) {
	for name, want := range map[string]string{
		"kernel.shm_rmid_forced":             "kernel.shm_rmid_forced",
		"kernel/shm_rmid_forced":             "kernel.shm_rmid_forced",
		"net.ipv4.conf.eth0/1.forwarding":    "net.ipv4.conf.eth0/1.forwarding",
		"net/ipv4/conf/eth0.1/forwarding":    "net.ipv4.conf.eth0/1.forwarding",
		"net.ipv4.conf.all/default.whatever": "net.ipv4.conf.all/default.whatever",
		"one":                                "one",
	} {
		pod := podOf(func(pod *corev1.Pod, _ *corev1.Container) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
		})
		got := sandboxOf(t, testNode, pod, SandboxOptions{}).Linux.Sysctls
		if len(got) != 1 || got[want] != "1" {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

func TestSandboxSecurity(t *testing.T) {
	context := func(sc corev1.PodSecurityContext) func(*corev1.Pod, *corev1.Container) {
		return func(pod *corev1.Pod, _ *corev1.Container) { pod.Spec.SecurityContext = &sc }
	}
	privileged := &corev1.SecurityContext{Privileged: new(true)}
	for _, test := range []struct {
		what string
		edit func(*corev1.Pod, *corev1.Container)
		want string
	}{
		{"nothing asked for", nil, `{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}}`},
		{"the host's namespaces", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
		}, `{"namespaceOptions": {"network": "NODE", "pid": "NODE", "ipc": "NODE"}, "seccomp": {}}`},
		{"shareProcessNamespace", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = new(true) },
			`{"namespaceOptions": {}, "seccomp": {}}`},
		{"user and groups", context(corev1.PodSecurityContext{
			RunAsUser: new(int64(1000)), RunAsGroup: new(int64(0)), SupplementalGroups: []int64{5}, FSGroup: new(int64(6)),
			SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
		}), `{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "runAsUser": {"value": "1000"}, "runAsGroup": {},
			"supplementalGroups": ["5", "6"], "supplementalGroupsPolicy": "Strict"}`},
		{"the CRI takes no group without a user", context(corev1.PodSecurityContext{RunAsGroup: new(int64(7))}),
			`{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}}`},
		{"fsGroup that is also supplemental", context(corev1.PodSecurityContext{SupplementalGroups: []int64{5}, FSGroup: new(int64(5))}),
			`{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "supplementalGroups": ["5"]}`},
		{"SELinux", context(corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"}}),
			`{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "selinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "s0"}}`},
		{"a privileged container", func(_ *corev1.Pod, app *corev1.Container) { app.SecurityContext = privileged },
			`{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "privileged": true}`},
		{"a privileged init container", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", SecurityContext: privileged}}
		}, `{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "privileged": true}`},
		{"a privileged ephemeral container", func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{SecurityContext: privileged}}}
		}, `{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}, "privileged": true}`},
		{"the containers' seccomp profile is not the sandbox's", context(corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		}), `{"namespaceOptions": {"pid": "CONTAINER"}, "seccomp": {}}`},
		{"the host's users", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(true) },
			`{"namespaceOptions": {"pid": "CONTAINER", "usernsOptions": {"mode": "NODE"}}, "seccomp": {}}`},
		{"users of its own (KEP-127)", func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(false) },
			`{"namespaceOptions": {"pid": "CONTAINER", "usernsOptions": {
				"uids": [{"hostId": 65536, "length": 65536}], "gids": [{"hostId": 131072, "length": 65536}]}}, "seccomp": {}}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			config := sandboxOf(t, testNode, podOf(test.edit), SandboxOptions{UserNamespace: testUsers})
			wantJSON(t, config.Linux.SecurityContext, test.want)
		})
	}
}

func TestSandboxThatCannotBe(t *testing.T) {
	ownUsers := podOf(func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(false) })
	_, err := testNode.Sandbox(ownUsers, SandboxOptions{})
	wantError(t, err, "the pod has hostUsers: false, but user namespaces are not supported on this node")
	_, err = testNode.Sandbox(ownUsers, SandboxOptions{UserNamespace: &runtimeapi.UserNamespace{}})
	wantError(t, err, "the pod has hostUsers: false, but its user namespace maps no users or no groups")
	_, err = testNode.Sandbox(podOf(func(p *corev1.Pod, _ *corev1.Container) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicy("Other"))}
	}), SandboxOptions{})
	wantError(t, err, "unsupported supplementalGroupsPolicy: Other")
}

// A pod that asks for nothing has the least share of CPU, and no quota.
func TestSandboxResourcesOfNothing(t *testing.T) {
	config := sandboxOf(t, testNode, podOf(nil), SandboxOptions{})
	wantJSON(t, config.Linux.Resources, `{"cpuPeriod": "100000", "cpuShares": "2"}`)
	if config.Linux.Overhead != nil {
		t.Errorf("overhead %v", config.Linux.Overhead)
	}
}
