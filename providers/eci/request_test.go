package eci

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

// The service rounds up to what it sells; containers never have more than their group.
func TestSizes(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		limits := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				limits[name] = resource.MustParse(text)
			}
		}
		return corev1.ResourceRequirements{Limits: limits}
	}
	for name, c := range map[string]struct {
		init, containers []corev1.ResourceRequirements
		specs            string
		want             map[string]string
	}{
		"nothing":                  {want: map[string]string{"Cpu": "1", "Memory": "2"}},
		"less than is sold":        {containers: []corev1.ResourceRequirements{resources("100m", "64Mi")}, want: map[string]string{"Cpu": "0.25", "Memory": "0.5"}},
		"memory alone":             {containers: []corev1.ResourceRequirements{resources("", "3Gi")}, want: map[string]string{"Cpu": "0.25", "Memory": "3"}},
		"between two sizes":        {containers: []corev1.ResourceRequirements{resources("7", "13Gi")}, want: map[string]string{"Cpu": "7", "Memory": "13"}},
		"a sum":                    {containers: []corev1.ResourceRequirements{resources("100m", "1Gi"), resources("200m", "512Mi")}, want: map[string]string{"Cpu": "0.3", "Memory": "1.5"}},
		"thirds that are rounded":  {containers: []corev1.ResourceRequirements{resources("333m", "333Mi"), resources("333m", "333Mi")}, want: map[string]string{"Cpu": "0.666", "Memory": "0.66"}},
		"the largest init":         {init: []corev1.ResourceRequirements{resources("2", "1Gi"), resources("1", "3Gi")}, containers: []corev1.ResourceRequirements{resources("1", "1Gi")}, want: map[string]string{"Cpu": "2", "Memory": "3"}},
		"a size of the annotation": {specs: "2-4Gi", want: map[string]string{"Cpu": "2", "Memory": "4"}},
		"a list of the annotation": {specs: "2-4Gi, 4-8Gi,ecs.c6.xlarge", want: map[string]string{"InstanceType": "2-4Gi,4-8Gi,ecs.c6.xlarge"}},
	} {
		pod := newPod("a")
		pod.Annotations = map[string]string{AnnotationInstanceType: c.specs}
		for i, r := range c.containers {
			if i > 0 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox:1"})
			}
			pod.Spec.Containers[i].Resources = r
		}
		for i, r := range c.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("init-", i), Image: "busybox:1", Resources: r})
		}
		expect(t, name, request(t, pod), c.want, "Cpu", "Memory", "InstanceType")
		if err := newRig(t, 0).CreatePod(t.Context(), pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// request returns the parameters of the request for a pod.
func request(t *testing.T, pod *corev1.Pod, change ...func(*Config, *podgroup.Request)) map[string]string {
	t.Helper()
	config := testConfig("")
	r := &podgroup.Request{Pod: pod, Token: string(pod.UID), Tags: map[string]string{
		podgroup.TagClusterName: "home", podgroup.TagNamespace: pod.Namespace, podgroup.TagUID: string(pod.UID),
	}}
	for _, f := range change {
		f(&config, r)
	}
	b, err := newBackend(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.createParams(r)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := ecitest.Wrong("CreateContainerGroup", p); len(wrong) > 0 {
		t.Errorf("the API has no parameters %s, or not of that type", wrong)
	}
	return p
}

// expect compares all parameters that begin with one of the prefixes.
func expect(t *testing.T, what string, params, want map[string]string, prefixes ...string) {
	t.Helper()
	got := map[string]string{}
	for name, value := range params {
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			got[name] = value
		}
	}
	if maps.Equal(got, want) {
		return
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], value)
		}
	}
	for name, value := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is %q, and should not be there", what, name, value)
		}
	}
}

func TestTheLeastRequest(t *testing.T) {
	expect(t, "a pod of one container", request(t, newPod("a")), map[string]string{
		"ContainerGroupName": "default-a", "ClientToken": "uid-a", "RestartPolicy": "Always",
		"SecurityGroupId": "sg-1", "VSwitchId": "vsw-1", "Cpu": "1", "Memory": "2",
		"Tag.1.Key": "ClusterName", "Tag.1.Value": "home",
		"Tag.2.Key": "NameSpace", "Tag.2.Value": "default", // as other providers of ECI spell it
		"Tag.3.Key": "UID", "Tag.3.Value": "uid-a",
		"Container.1.Name": "main", "Container.1.Image": "busybox:1",
	})
}

func TestAnnotationsAndPodFields(t *testing.T) {
	pod := newPod("a")
	pod.Annotations = map[string]string{
		AnnotationInstanceType: "ecs.c6.large", annotationPrefix + "eci-security-group": "sg-2", annotationPrefix + "eci-vswitch": "vsw-2,vsw-3", annotationPrefix + "eci-zone": "cn-test-a",
		annotationPrefix + "eci-ram-role-name": "reader", annotationPrefix + "eci-eip-instanceid": "eip-1", annotationPrefix + "eci-with-eip": "true", annotationPrefix + "eip-bandwidth": "5",
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](7)
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "10.1.1.1", Hostnames: []string{"db", "db.local"}}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](2000), RunAsNonRoot: ptr.To(true), Sysctls: []corev1.Sysctl{
		{Name: "net.core.somaxconn", Value: "9"}, {Name: "net.ipv4.ping_group_range", Value: "0 1"}, {Name: "kernel.msgmax", Value: "65536"},
	}}
	pod.Spec.ShareProcessNamespace, pod.Spec.Hostname = ptr.To(true), "web-0"
	params := request(t, pod, func(_ *Config, r *podgroup.Request) {
		r.DNS = podspec.ResolvConf{Nameservers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}}
	})
	want := map[string]string{
		"InstanceType": "ecs.c6.large", "SecurityGroupId": "sg-2", "VSwitchId": "vsw-2,vsw-3", "ZoneId": "cn-test-a", "RamRoleName": "reader",
		"EipInstanceId": "eip-1", "EipBandwidth": "5", "AutoCreateEip": "true",
		"TerminationGracePeriodSeconds": "7", "ActiveDeadlineSeconds": "60",
		"DnsPolicy": "None", "DnsConfig.NameServer.1": "10.0.0.10", "DnsConfig.Search.1": "svc", "DnsConfig.Option.1.Name": "ndots", "DnsConfig.Option.1.Value": "5",
		"HostAliase.1.Ip": "10.1.1.1", "HostAliase.1.Hostname.1": "db", "HostAliase.1.Hostname.2": "db.local",
		"HostSecurityContext.Sysctl.1.Name": "net.core.somaxconn", "HostSecurityContext.Sysctl.1.Value": "9",
		"HostSecurityContext.Sysctl.2.Name": "kernel.msgmax", "HostSecurityContext.Sysctl.2.Value": "65536",
		"SecurityContext.Sysctl.1.Name": "net.ipv4.ping_group_range", "SecurityContext.Sysctl.1.Value": "0 1",
		"ShareProcessNamespace": "true", "HostName": "web-0", "Container.1.SecurityContextRunAsNonRoot": "true",
		"Container.1.SecurityContext.RunAsUser": "1000", "Container.1.SecurityContextRunAsGroup": "2000",
	}
	for name, value := range want {
		if params[name] != value {
			t.Errorf("%s is %q, want %q", name, params[name], value)
		}
	}
	if params["Cpu"] != "" || params["Memory"] != "" {
		t.Error("a group of an instance type has a size of its own")
	}
}

func TestContainersInFull(t *testing.T) {
	pod := newPod("a")
	pod.Annotations = map[string]string{AnnotationInstanceType: "ecs.gn6i-c4g1.xlarge"}
	quantity := resource.MustParse
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "first", Image: "busybox:1", Command: []string{"true"}, TerminationMessagePath: "/end", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}
	pod.Spec.Containers[0] = corev1.Container{
		Name: "main", Image: "busybox:1", Command: []string{"sh", "-c"}, Args: []string{"exit 0"}, WorkingDir: "/srv",
		ImagePullPolicy: corev1.PullAlways, Stdin: true, StdinOnce: true, TTY: true,
		Env: []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}, {Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIPs"}}}},
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("1500m"), corev1.ResourceMemory: quantity("3Gi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: quantity("3500Mi"), resourceGPU: quantity("1")},
		},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web"), Scheme: "HTTP"}}},
		LivenessProbe:  &corev1.Probe{InitialDelaySeconds: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "/ok"}}}},
		Lifecycle: &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/start", Port: intstr.FromString("web"), Scheme: "HTTP", HTTPHeaders: []corev1.HTTPHeader{{Name: "X-By", Value: "vk"}},
			}},
			PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: ptr.To[int64](7), RunAsGroup: ptr.To[int64](8), Privileged: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "s", ReadOnly: true, MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}},
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	expect(t, "the containers", request(t, pod), map[string]string{
		"InitContainer.1.Name": "first", "InitContainer.1.Image": "busybox:1", "InitContainer.1.Command.1": "true",
		"InitContainer.1.TerminationMessagePath": "/end", "InitContainer.1.TerminationMessagePolicy": "File",
		"Container.1.Name": "main", "Container.1.Image": "busybox:1", "Container.1.Command.1": "sh", "Container.1.Command.2": "-c", "Container.1.Arg.1": "exit 0",
		"Container.1.WorkingDir": "/srv", "Container.1.ImagePullPolicy": "Always", "Container.1.Stdin": "true", "Container.1.StdinOnce": "true", "Container.1.Tty": "true",
		"Container.1.EnvironmentVar.1.Key": "COLOUR", "Container.1.EnvironmentVar.1.Value": "blue",
		"Container.1.EnvironmentVar.2.Key": "IP", "Container.1.EnvironmentVar.2.FieldRef.FieldPath": "status.podIP",
		"Container.1.EnvironmentVar.3.Key": "IPS", "Container.1.EnvironmentVar.3.FieldRef.FieldPath": "status.podIP",
		"Container.1.Port.1.Port": "80", "Container.1.Port.1.Protocol": "TCP", "Container.1.Port.2.Port": "53", "Container.1.Port.2.Protocol": "UDP",
		"Container.1.Cpu": "1.5", "Container.1.Memory": "3.42", "Container.1.Gpu": "1",
		"Container.1.ReadinessProbe.InitialDelaySeconds": "0", "Container.1.ReadinessProbe.PeriodSeconds": "5",
		"Container.1.ReadinessProbe.HttpGet.Path": "/ok", "Container.1.ReadinessProbe.HttpGet.Port": "80", "Container.1.ReadinessProbe.HttpGet.Scheme": "HTTP",
		"Container.1.LivenessProbe.InitialDelaySeconds": "3", "Container.1.LivenessProbe.Exec.Command.1": "cat", "Container.1.LivenessProbe.Exec.Command.2": "/ok",
		"Container.1.LifecyclePostStartHandlerHttpGetPath": "/start", "Container.1.LifecyclePostStartHandlerHttpGetPort": "80", "Container.1.LifecyclePostStartHandlerHttpGetScheme": "HTTP",
		"Container.1.LifecyclePostStartHandlerHttpGetHttpHeader.1.Name": "X-By", "Container.1.LifecyclePostStartHandlerHttpGetHttpHeader.1.Value": "vk",
		"Container.1.LifecyclePreStopHandlerTcpSocketPort": "80",
		"Container.1.SecurityContext.RunAsUser":            "7", "Container.1.SecurityContextRunAsGroup": "8", "Container.1.SecurityContext.ReadOnlyRootFilesystem": "true", "Container.1.SecurityContext.Capability.Add.1": "NET_ADMIN",
		"Container.1.VolumeMount.1.Name": "v", "Container.1.VolumeMount.1.MountPath": "/v", "Container.1.VolumeMount.1.SubPath": "s", "Container.1.VolumeMount.1.ReadOnly": "true",
		"Container.1.VolumeMount.1.MountPropagation": "HostToContainer", "Container.1.SecurityContextPrivileged": "true", "Container.1.EnvironmentVarHide": "true",
	}, "Container.", "InitContainer.", "Cpu", "Memory")
}

func TestHooksThatAreCommands(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/ok"}}}}
	expect(t, "the hook", request(t, pod), map[string]string{
		"Container.1.LifecyclePostStartHandlerExec.1": "touch", "Container.1.LifecyclePostStartHandlerExec.2": "/ok",
	}, "Container.1.Lifecycle")
}

// ECI accepts other names than Kubernetes.
func TestNamesOfGroups(t *testing.T) {
	pod := newPod("db-0.example")
	if got := request(t, pod)["ContainerGroupName"]; got != "default-db-0-example" {
		t.Errorf("the group of a pod with a dot is named %q", got)
	}
	pod.Name = strings.Repeat("a", 119) + ".b.c"
	if got := request(t, pod)["ContainerGroupName"]; len(got) > 128 || strings.HasSuffix(got, "-") {
		t.Errorf("the group of a pod with a long name is named %q, of %d characters", got, len(got))
	}
}

func TestGroupsOfWindows(t *testing.T) {
	params := request(t, newPod("a"), func(c *Config, _ *podgroup.Request) { c.OperatingSystem = "windows" })
	if params["OsType"] != "Windows" {
		t.Errorf("the operating system is %q", params["OsType"])
	}
}

func TestVolumes(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
		{Name: "share", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/a", ReadOnly: true}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "alicloud/disk", FSType: "ext4", Options: map[string]string{"volumeId": "d-1"}}}},
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}
	params := request(t, pod, func(_ *Config, r *podgroup.Request) {
		r.Files = map[string]volume.Files{"conf": {"b/x": {Data: []byte("two"), Mode: 0o400}, "a": {Data: []byte("one"), Mode: 0o644}}}
	})
	expect(t, "the volumes", params, map[string]string{
		"Volume.1.Name": "tmp", "Volume.1.Type": "EmptyDirVolume", "Volume.1.EmptyDirVolume.Medium": "Memory", "Volume.1.EmptyDirVolume.SizeLimit": "1Gi",
		"Volume.2.Name": "share", "Volume.2.Type": "NFSVolume", "Volume.2.NFSVolume.Server": "nas", "Volume.2.NFSVolume.Path": "/a", "Volume.2.NFSVolume.ReadOnly": "true",
		"Volume.3.Name": "disk", "Volume.3.Type": "FlexVolume", "Volume.3.FlexVolume.Driver": "alicloud/disk", "Volume.3.FlexVolume.FsType": "ext4", "Volume.3.FlexVolume.Options": `{"volumeId":"d-1"}`,
		"Volume.4.Name": "conf", "Volume.4.Type": "ConfigFileVolume",
		"Volume.4.ConfigFileVolume.ConfigFileToPath.1.Path": "a", "Volume.4.ConfigFileVolume.ConfigFileToPath.1.Mode": "0644",
		"Volume.4.ConfigFileVolume.ConfigFileToPath.1.Content": base64.StdEncoding.EncodeToString([]byte("one")),
		"Volume.4.ConfigFileVolume.ConfigFileToPath.2.Path":    "b/x", "Volume.4.ConfigFileVolume.ConfigFileToPath.2.Mode": "0400",
		"Volume.4.ConfigFileVolume.ConfigFileToPath.2.Content": base64.StdEncoding.EncodeToString([]byte("two")),
	}, "Volume.")
}

func TestWhatIsNotSupportedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"DaemonSet": {func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
		}, "pods of a DaemonSet, such as agent"},
		"hostNetwork": {func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }, "hostNetwork"},
		"hostPath": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "volumes[v].hostPath"},
		"another flexVolume": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "x/y"}}}}
		}, "volumes[v].flexVolume.driver x/y"},
		"sidecar": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		}, "initContainers[side].restartPolicy Always"},
		"startup probe": {func(pod *corev1.Pod) { pod.Spec.Containers[0].StartupProbe = &corev1.Probe{PeriodSeconds: 1} }, "containers[main].startupProbe"},
		"port name": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}}
		}, "livenessProbe of container main: it has no port web"},
		"probe of another host": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "db", Port: intstr.FromInt32(1)}}}
		}, "containers[main].livenessProbe.tcpSocket.host"},
		"probe with headers": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Port: intstr.FromInt32(1), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "a"}}}}}
		}, "containers[main].readinessProbe.httpGet.httpHeaders"},
		"sleeping hook": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		}, "containers[main].lifecycle.preStop.sleep"},
		"port name of a hook": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
		}, "postStart of container main: it has no port web"},
		"stop signal": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGUSR1)}
		}, "containers[main].lifecycle.stopSignal"},
		"restart policy of a container": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		}, "containers[main].restartPolicy Never"},
		"variable from a file": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Key: "A", Path: "f", VolumeName: "v"}}}}
		}, "containers[main].env[A].valueFrom.fileKeyRef"},
		"GPUs of no instance type": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceGPU: resource.MustParse("1")}
		}, "GPUs for container main without an instance type"},
		"privileged init container": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), RunAsGroup: ptr.To[int64](7)}}}
		}, "initContainers[first].securityContext.privileged; initContainers[first].securityContext.runAsGroup 7"},
		"group of a pod with init containers": {func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsGroup: ptr.To[int64](7)}
			pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}}
		}, "securityContext.runAsGroup 7 for init container first"},
		"sysctl": {func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}, {Name: "vm.swappiness", Value: "1"}}}
		}, "sysctl net.ipv4.tcp_syncookies; sysctl vm.swappiness"},
		"capability": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW", "SYS_ADMIN"}}}
		}, "capability SYS_ADMIN of container main"},
		"success threshold": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{SuccessThreshold: 2, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}}
		}, "readinessProbe.successThreshold 2 of container main"},
		"too many specifications": {func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{AnnotationInstanceType: "1-2Gi,2-4Gi,4-8Gi,8-16Gi,16-32Gi,ecs.c6.large"}
		}, "6 sizes and instance types"},
		"instance family": {func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{annotationPrefix + "eci-instance-family": "ecs.c6"}
		}, "the annotation k8s.aliyun.com/eci-instance-family"},
		"too many containers": {func(pod *corev1.Pod) {
			for i := range 20 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c-", i), Image: "busybox:1"})
			}
		}, "21 containers, more than 20"},
	} {
		pod := newPod("a")
		c.change(pod)
		r := newRig(t, 0)
		err := r.CreatePod(t.Context(), pod)
		if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "ProviderNotSupported: ECI does not have: ") {
			t.Errorf("%s: the error is %v, want a permanent one with %q", name, err, c.want)
		}
		if calls := r.api.Calls(""); calls != 0 {
			t.Errorf("%s: there were %d calls", name, calls)
		}
	}
}

func TestLogins(t *testing.T) {
	expect(t, "the credentials", request(t, newPod("a"), func(_ *Config, r *podgroup.Request) {
		r.Logins = []podgroup.Login{{Registry: "docker.io", Username: "hub", Password: "secret"}, {Registry: "registry.example.com", Username: "me", Password: "pass"}}
	}), map[string]string{
		"ImageRegistryCredential.1.Server": "docker.io", "ImageRegistryCredential.1.UserName": "hub", "ImageRegistryCredential.1.Password": "secret",
		"ImageRegistryCredential.2.Server": "registry.example.com", "ImageRegistryCredential.2.UserName": "me", "ImageRegistryCredential.2.Password": "pass",
	}, "ImageRegistryCredential.")
}

// The API has no runAsNonRoot for init containers: an event says so, unless they run as a user
// who is not root.
func TestNonRootInitContainers(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "may-be-root", Image: "busybox:1"},
		{Name: "another", Image: "busybox:1", SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}},
		{Name: "own", Image: "busybox:1", SecurityContext: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}},
	}
	r.create(t, pod)
	event := <-r.home.Events.Events
	if !strings.Contains(event, "runAsNonRoot for init container may-be-root") || strings.Contains(event, "another") || !strings.Contains(event, "initContainers[own].securityContext.runAsNonRoot") {
		t.Errorf("the event is %q", event)
	}
}

// What pods contain arrives as it was.
func TestHostileContents(t *testing.T) {
	r := newRig(t, 0)
	texts := []string{"a+b *~%20&c=d", "\x00\x01\x7f", "line\r\nline\n", "日本\u202e", "%", "&Action=DeleteContainerGroup", "", " ", "$(HOME) $$(X)", "'\"\\\\`"}
	pod := newPod("a")
	c := &pod.Spec.Containers[0]
	c.Args, c.Command = texts, []string{"sh", "-c", texts[0]}
	for i, text := range texts {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V_", i), Value: text})
	}
	binary := []byte{0, 0xff, 0xfe, '\n', 0x80}
	r.home.SetSecret("keys", "", map[string][]byte{"key": binary})
	pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	pod.Annotations = map[string]string{annotationPrefix + "eci-core-pattern": "|/a b&c=%2F\n"}
	r.create(t, pod)
	params, err := r.api.Params("a")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if got := params[fmt.Sprintf("Container.1.Arg.%d", i+1)]; got != text {
			t.Errorf("argument %q arrives as %q", text, got)
		}
		if got := params[fmt.Sprintf("Container.1.EnvironmentVar.%d.Value", i+1)]; got != strings.ReplaceAll(text, "$$", "$") && got != text {
			t.Errorf("value %q arrives as %q", text, got)
		}
	}
	if got := params["CorePattern"]; got != "|/a b&c=%2F" {
		t.Errorf("the annotation arrives as %q", got)
	}
	if got := r.file(t, "a", "keys", "key"); got != string(binary) {
		t.Errorf("the file arrives as %q", got)
	}
}

// The API takes less of a variable than Kubernetes: it says which, and the pod fails.
func TestVariablesThatTheAPIDoesNotTake(t *testing.T) {
	for name, value := range map[string]string{"LONG": "hunter2" + strings.Repeat("x", 250), "dotted.name": "hunter2", "1ST": "hunter2"} {
		pod := newPod("a")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: value}}
		err := newRig(t, 0).CreatePod(t.Context(), pod)
		if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

// What a volume may have in all is refused before the service does.
func TestVolumesWithTooManyFiles(t *testing.T) {
	for name, count := range map[string]int{"many bytes": 3, "many files": 91} {
		t.Run(name, func(t *testing.T) {
			files := volume.Files{}
			for i := range count {
				files[fmt.Sprint("f-", i)] = volume.File{Data: make([]byte, 60<<10/count+1)}
			}
			if err := checkFiles("v", files); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "volumes[v]") {
				t.Errorf("got %v", err)
			}
			delete(files, "f-0")
			if err := checkFiles("v", files); err != nil {
				t.Error(err)
			}
		})
	}
}
