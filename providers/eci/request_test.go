package eci

import (
	"encoding/base64"
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
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/internal/ecitest"
)

func TestSizesAreRoundedToWhatIsSold(t *testing.T) {
	for _, c := range []struct{ ask, want size }{
		{size{}, size{1, 2}},
		{size{0.1, 0.1}, size{0.25, 0.5}},
		{size{0.25, 0.5}, size{0.25, 0.5}},
		{size{0.25, 1.1}, size{0.5, 2}},
		{size{0, 3}, size{1, 4}},
		{size{3, 1}, size{4, 4}},
		{size{0.5, 20}, size{4, 32}},
		{size{64, 512}, size{64, 512}},
	} {
		if got, err := c.ask.roundUpToInstance(); err != nil || got != c.want {
			t.Errorf("%v is rounded to %v, want %v: %v", c.ask, got, c.want, err)
		}
	}
	for _, ask := range []size{{65, 1}, {1, 513}} {
		if _, err := ask.roundUpToInstance(); !errdefs.IsPermanent(err) {
			t.Errorf("for %v the error is %v, want a permanent one", ask, err)
		}
	}
}

func TestPodsNeedTheirContainersOrTheLargestBefore(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}
	}
	pod := newPod("a")
	pod.Spec.Containers = []corev1.Container{{Resources: resources("100m", "1Gi")}, {Resources: resources("200m", "512Mi")}}
	if got := podSize(pod); got != (size{0.3, 1.5}) {
		t.Errorf("the containers need %v", got)
	}
	pod.Spec.InitContainers = []corev1.Container{{Resources: resources("2", "1Gi")}, {Resources: resources("1", "3Gi")}}
	if got := podSize(pod); got != (size{2, 3}) {
		t.Errorf("with init containers they need %v", got)
	}
}

// request returns the parameters of the request for a pod.
func request(t *testing.T, pod *corev1.Pod, change ...func(*Inputs)) map[string]string {
	t.Helper()
	config := testConfig("")
	if err := config.Complete(); err != nil {
		t.Fatal(err)
	}
	in := Inputs{Config: &config, NodeName: "vk"}
	for _, f := range change {
		f(&in)
	}
	r, err := ToCreateRequest(pod, in)
	if err != nil {
		t.Fatal(err)
	}
	params, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	if unknown := ecitest.Unknown(actionCreate, params); len(unknown) > 0 {
		t.Errorf("the API has no parameters %s", unknown)
	}
	return params
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
		"RegionId": "cn-test", "ContainerGroupName": "default-a", "ClientToken": "uid-a", "RestartPolicy": "Always",
		"SecurityGroupId": "sg-1", "VSwitchId": "vsw-1", "Cpu": "1", "Memory": "2",
		"Tag.1.Key": "ClusterName", "Tag.1.Value": "home",
		"Tag.2.Key": "NodeName", "Tag.2.Value": "vk",
		"Tag.3.Key": "NameSpace", "Tag.3.Value": "default",
		"Tag.4.Key": "PodName", "Tag.4.Value": "a",
		"Tag.5.Key": "UID", "Tag.5.Value": "uid-a",
		"Tag.6.Key": "CreationTimestamp", "Tag.6.Value": "2026-01-02T03:04:05Z",
		"Container.1.Name": "main", "Container.1.Image": "busybox:1",
	})
}

func TestAnnotationsAndPodFields(t *testing.T) {
	pod := newPod("a")
	pod.Annotations = map[string]string{
		AnnotationInstanceType: "ecs.c6.large", AnnotationSecurityGroup: "sg-2", AnnotationVSwitch: "vsw-2,vsw-3", AnnotationZone: "cn-test-a",
		AnnotationRAMRole: "reader", AnnotationEIP: "eip-1", AnnotationWithEIP: "true", AnnotationEIPBandwidth: "5",
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](7)
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}},
	}
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "10.1.1.1", Hostnames: []string{"db", "db.local"}}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](2000), Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "9"}}}
	params := request(t, pod)
	want := map[string]string{
		"InstanceType": "ecs.c6.large", "SecurityGroupId": "sg-2", "VSwitchId": "vsw-2,vsw-3", "ZoneId": "cn-test-a", "RamRoleName": "reader",
		"EipInstanceId": "eip-1", "EipBandwidth": "5", "AutoCreateEip": "true",
		"TerminationGracePeriodSeconds": "7", "ActiveDeadlineSeconds": "60",
		"DnsPolicy": "None", "DnsConfig.NameServer.1": "10.0.0.10", "DnsConfig.Search.1": "svc", "DnsConfig.Option.1.Name": "ndots", "DnsConfig.Option.1.Value": "5",
		"HostAliase.1.Ip": "10.1.1.1", "HostAliase.1.Hostname.1": "db", "HostAliase.1.Hostname.2": "db.local",
		"SecurityContext.Sysctl.1.Name": "net.core.somaxconn", "SecurityContext.Sysctl.1.Value": "9",
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
			RunAsUser: ptr.To[int64](7), RunAsGroup: ptr.To[int64](8), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "s", ReadOnly: true}},
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
	params := request(t, newPod("a"), func(in *Inputs) { in.Config.OperatingSystem = "windows" })
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
	params := request(t, pod, func(in *Inputs) {
		in.Contents = map[string]volume.Files{"conf": {"b/x": {Data: []byte("two"), Mode: 0o400}, "a": {Data: []byte("one"), Mode: 0o644}}}
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
		}, "ProviderNotSupported: pods of a DaemonSet, such as agent"},
		"hostNetwork": {func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }, "ProviderNotSupported: hostNetwork"},
		"hostPath": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "ProviderNotSupported: volume v of kind hostPath"},
		"claim": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		}, "ProviderNotSupported: volume v of kind persistentVolumeClaim"},
		"another flexVolume": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "x/y"}}}}
		}, "ProviderNotSupported: volume v of kind flexVolume"},
		"sidecar": {func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		}, "init container side with restartPolicy Always"},
		"startup probe": {func(pod *corev1.Pod) { pod.Spec.Containers[0].StartupProbe = &corev1.Probe{} }, "startupProbe of container main"},
		"port name": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}}
		}, "no port of that name"},
		"shared processes": {func(pod *corev1.Pod) { pod.Spec.ShareProcessNamespace = ptr.To(true) }, "ProviderNotSupported: shareProcessNamespace"},
		"probe of another host": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "db", Port: intstr.FromInt32(1)}}}
		}, "livenessProbe of container main of another host"},
		"probe with headers": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Port: intstr.FromInt32(1), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "a"}}}}}
		}, "readinessProbe of container main with httpHeaders"},
		"sleeping hook": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		}, "preStop of container main that sleeps"},
		"port name of a hook": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
		}, "postStart of container main: it has no port of that name"},
		"stop signal": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGUSR1)}
		}, "stopSignal of container main"},
		"restart policy of a container": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		}, "a restartPolicy of container main"},
		"variable from a file": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}}}}
		}, "variable A of container main from a file"},
		"GPUs of no instance type": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceGPU: resource.MustParse("1")}
		}, "GPUs for container main without an instance type"},
		"privileged": {func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "privileged container main"},
	} {
		pod := newPod("a")
		c.change(pod)
		err := Check(pod)
		if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "ProviderNotSupported") {
			t.Errorf("%s: the error is %v, want a permanent one with %q", name, err, c.want)
		}
	}
}

func TestCredentialsAreOfTheImagesRegistries(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "b", Image: "registry.example.com/team/app:1"})
	secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
		`{"auths":{"registry.example.com":{"username":"me","password":"pass"},"other.example.com":{"username":"x","password":"y"},"https://index.docker.io/v1/":{"auth":"` +
			base64.StdEncoding.EncodeToString([]byte("hub:secret")) + `"}}}`)}}
	found, err := Credentials(pod, []*corev1.Secret{secret})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the credentials", request(t, pod, func(in *Inputs) { in.Credentials = found }), map[string]string{
		"ImageRegistryCredential.1.Server": "docker.io", "ImageRegistryCredential.1.UserName": "hub", "ImageRegistryCredential.1.Password": "secret",
		"ImageRegistryCredential.2.Server": "registry.example.com", "ImageRegistryCredential.2.UserName": "me", "ImageRegistryCredential.2.Password": "pass",
	}, "ImageRegistryCredential.")
}
