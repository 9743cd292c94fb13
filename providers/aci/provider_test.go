package aci

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
)

// rig is a provider before a fake.
type rig struct {
	*podgroup.Provider
	world   *grouptest.World
	cluster *grouptest.Cluster
	server  *acitest.Server
}

func inBubble(t *testing.T, change func(*Config), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		world := grouptest.New(time.Second)
		r := &rig{world: world, cluster: grouptest.NewCluster("home"), server: acitest.New(world)}
		r.start(t, change)
		test(t, r)
	})
}

func (r *rig) start(t *testing.T, change func(*Config)) {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := newProvider(r.cluster.Config(), cfg, connect(r.server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Close(t, p) })
	r.Provider = p
}

func (r *rig) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	r.cluster.SetPod(pod)
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
}

func (r *rig) status(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	time.Sleep(30 * time.Second)
	status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// group returns the group of a pod as it was sent.
func (r *rig) group(t *testing.T, pod string) *acitest.Group {
	t.Helper()
	u, err := r.world.OfPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return u.Spec.Data.(*acitest.Group)
}

// claim adds a claim that is bound to a share of Azure Files.
func (r *rig) claim(t *testing.T, name string, source corev1.PersistentVolumeSource) {
	t.Helper()
	client := r.cluster.Client().CoreV1()
	_, err := client.PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = client.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func fullPod() *corev1.Pod {
	pod := grouptest.NewPod("full")
	pod.Annotations = map[string]string{annotationPolicy: "cG9saWN5", annotationZones: "1,2"}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: new(int32(0o644))}}},
		{Name: "share", VolumeSource: corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ShareName: "share", SecretName: "account"}}},
		{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: fileDriver, VolumeAttributes: map[string]string{"shareName": "other", "secretName": "account"}}}},
		{Name: "source", VolumeSource: corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{Repository: "https://git.example/app", Directory: ".", Revision: "abc"}}},
		{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	}
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox", Command: []string{"true"}, VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}}}
	pod.Spec.Containers[0] = corev1.Container{
		Name: "main", Image: "registry.example/app:1", Command: []string{"app"}, Args: []string{"-x", "a b"},
		Env:   []corev1.EnvVar{{Name: "COLOUR", Value: "not-to-be-shown"}, {Name: "EMPTY"}, {Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}},
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("255m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1500M")},
		},
		LivenessProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromString("web")}}, PeriodSeconds: 7},
		ReadinessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}},
		SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(1000)), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "d", MountPath: "/data", ReadOnly: true}, {Name: "conf", MountPath: "/conf"}, {Name: "share", MountPath: "/share"},
			{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
	}
	return pod
}

func TestGroup(t *testing.T) {
	identity := "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/images"
	inBubble(t, func(c *Config) {
		c.MasterURI, c.ImageIdentity, c.LogAnalyticsID, c.LogAnalyticsKey = "https://api.example:6443", identity, "workspace", "not-to-be-shown"
		c.ClusterResourceID = "/subscriptions/s/cluster"
	}, func(t *testing.T, r *rig) {
		r.cluster.SetConfigMap("settings", map[string]string{"level": "not-to-be-shown"})
		r.cluster.SetSecret("account", corev1.SecretTypeOpaque, map[string][]byte{"azurestorageaccountname": []byte("store"), "azurestorageaccountkey": []byte("not-to-be-shown")})
		r.cluster.SetSecret("pull", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"username": "u", "password": "not-to-be-shown"}}}`)})
		r.claim(t, "data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: fileDriver, VolumeHandle: "group#store#claimed#", NodeStageSecretRef: &corev1.SecretReference{Namespace: "default", Name: "account"},
		}})
		pod := fullPod()
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "team.azurecr.io/side:1"})
		r.create(t, pod)
		g := r.group(t, "full")
		p, main := g.Properties, g.Properties.Containers[0].Properties
		var command []string
		for _, word := range main.Command {
			command = append(command, *word)
		}
		got := fmt.Sprintln(command, *main.Resources.Requests.CPU, *main.Resources.Requests.MemoryInGB, *main.Resources.Limits.MemoryInGB, *p.Containers[1].Properties.Resources.Requests.MemoryInGB,
			*main.LivenessProbe.HTTPGet.Port, *main.LivenessProbe.PeriodSeconds, *main.ReadinessProbe.Exec.Command[0], *main.SecurityContext.RunAsUser, *main.SecurityContext.Capabilities.Add[0],
			*main.EnvironmentVariables[0].SecureValue, *main.EnvironmentVariables[1].Value, *main.EnvironmentVariables[2].SecureValue, *p.SKU, *p.ConfidentialComputeProperties.CcePolicy,
			*g.Zones[0], *g.Zones[1], *p.DNSConfig.NameServers[0], *p.DNSConfig.SearchDomains, *p.SubnetIDs[0].ID, p.IPAddress)
		want := "[app -x a b] 0.26 1.1 1.5 1.5 80 7 ready 1000 NET_ADMIN not-to-be-shown  api.example Confidential cG9saWN5 1 2 10.0.0.10 default.svc.cluster.local svc.cluster.local cluster.local " +
			"/subscriptions/" + acitest.Subscription + "/resourceGroups/" + acitest.ResourceGroup + "/providers/Microsoft.Network/virtualNetworks/net/subnets/groups <nil>"
		if strings.TrimSpace(got) != want {
			t.Errorf("the group has\n%s, want\n%s", got, want)
		}
		claimed, conf, git, token := p.Volumes[0].AzureFile, p.Volumes[2].Secret, p.Volumes[5].GitRepo, p.Volumes[6].Secret
		if *claimed.ShareName != "claimed" || *claimed.StorageAccountName != "store" || !*claimed.ReadOnly || *conf["level"] != "bm90LXRvLWJlLXNob3du" || token["token"] == nil || p.Volumes[1].EmptyDir == nil || *p.Volumes[4].AzureFile.ShareName != "other" ||
			*git.Repository != "https://git.example/app" || *git.Directory != "." || *git.Revision != "abc" {
			t.Errorf("the volumes are %+v", p.Volumes)
		}
		logs := p.Diagnostics.LogAnalytics
		if *logs.WorkspaceID != "workspace" || *logs.WorkspaceKey != "not-to-be-shown" || *logs.LogType != aci.LogAnalyticsLogTypeContainerInsights ||
			*logs.Metadata["cluster-resource-id"] != "/subscriptions/s/cluster" || *logs.Metadata["node-name"] != pod.Spec.NodeName || *logs.Metadata["pod-uuid"] != string(pod.UID) {
			t.Errorf("the logs go to %+v", logs)
		}
		credentials := p.ImageRegistryCredentials
		if len(credentials) != 2 || *credentials[0].Server != "registry.example" || *credentials[0].Password != "not-to-be-shown" || *credentials[1].Server != "team.azurecr.io" || *credentials[1].Identity != identity {
			t.Errorf("the credentials are %+v", credentials)
		}
		if text, _ := json.Marshal(g.Tags); strings.Contains(string(text), "not-to-be-shown") {
			t.Errorf("the tags have secrets: %s", text)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodRunning || s.PodIP == "" || len(s.InitContainerStatuses) != 1 || s.InitContainerStatuses[0].State.Terminated == nil || !s.ContainerStatuses[0].Ready {
			t.Errorf("the status is %+v", s)
		}
	})
}

// Azure refuses a limit that is more than what the containers of a group request together, as that
// of most pods is: it is lowered, and an event says so.
func TestLimitAboveRequests(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("burst")
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("700M")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("750M")},
		}
		side := *pod.Spec.Containers[0].DeepCopy()
		side.Name, side.Resources.Requests[corev1.ResourceMemory] = "side", resource.MustParse("100M")
		pod.Spec.Containers = append(pod.Spec.Containers, side)
		if missing, ignored := r.Unsupported(pod); len(missing) > 0 || len(ignored) != 2 || ignored[0] != "containers[main].resources.limits.cpu above the 0.4 that the containers request together" {
			t.Errorf("missing %q, ignored %q", missing, ignored)
		}
		r.create(t, pod)
		for _, c := range r.group(t, "burst").Properties.Containers {
			if l := c.Properties.Resources.Limits; *l.CPU != 0.4 || *l.MemoryInGB != 0.8 {
				t.Errorf("the limits of %s are %g CPUs and %g GB", *c.Name, *l.CPU, *l.MemoryInGB)
			}
		}
		if s := r.status(t, pod); s.Phase != corev1.PodRunning {
			t.Errorf("the pod is %s", s.Phase)
		}
	})
}

func TestPublicGroup(t *testing.T) {
	inBubble(t, func(c *Config) { c.VNetName, c.SubnetName = "", "" }, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("web")
		pod.Annotations = map[string]string{annotationDNSLabel: "1st-Label", annotationGPU: "v100"}
		main := &pod.Spec.Containers[0]
		main.Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 443, Protocol: corev1.ProtocolTCP}}
		main.Resources.Limits = corev1.ResourceList{gpuResource: resource.MustParse("2")}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "side", Ports: []corev1.ContainerPort{{ContainerPort: 80}}})
		r.create(t, pod)
		p := r.group(t, "web").Properties
		gpu := p.Containers[0].Properties.Resources.Requests.Gpu
		if a := p.IPAddress; a == nil || *a.Type != aci.ContainerGroupIPAddressTypePublic || len(a.Ports) != 2 || *a.DNSNameLabel != "1st-Label" || *gpu.Count != 2 || *gpu.SKU != aci.GpuSKUV100 || p.DNSConfig != nil {
			t.Errorf("the group is %+v", p)
		}
		spot := grouptest.NewPod("spot")
		spot.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		spot.Annotations = map[string]string{annotationPriority: "Spot"}
		r.create(t, spot)
		if p := r.group(t, "spot").Properties; *p.Priority != aci.ContainerGroupPrioritySpot || p.IPAddress != nil {
			t.Errorf("the group is %+v", p)
		}
		if s := r.status(t, spot); s.Phase != corev1.PodRunning || s.PodIP != "" {
			t.Errorf("the status of a pod without an address is %+v", s)
		}
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for want, change := range map[string]func(*corev1.Pod){
			"a name with two hyphens": func(p *corev1.Pod) { p.Spec.Containers[0].Name = "a--b" },
			"args without command":    func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"a"} },
			`env["a.b"]`: func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "a.b", Value: "not-to-be-shown"}}
			},
			"SCTP": func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: corev1.ProtocolSCTP}}
			},
			"workingDir": func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/srv" },
			"startupProbe": func(p *corev1.Pod) {
				p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"a"}}}}
			},
			"livenessProbe.tcpSocket": func(p *corev1.Pod) {
				p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}}
			},
			"there is no port of that name": func(p *corev1.Pod) {
				p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
			},
			"initContainers[side].restartPolicy": func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "a", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			},
			"is none of Standard, Confidential": func(p *corev1.Pod) { p.Annotations = map[string]string{annotationSKU: "cheap"} },
			"neither Regular nor Spot":          func(p *corev1.Pod) { p.Annotations = map[string]string{annotationPriority: "spot"} },
			"is not a zone":                     func(p *corev1.Pod) { p.Annotations = map[string]string{annotationZones: "1,x"} },
			"is no DNS label":                   func(p *corev1.Pod) { p.Annotations = map[string]string{annotationDNSLabel: "A"} },
			"3 GPUs": func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuResource: resource.MustParse("3")}
			},
			"resources.limits[example.com/fpga]": func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/fpga": resource.MustParse("1")}
			},
			"csi.driver disk.csi.azure.com": func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "disk.csi.azure.com"}}}}
			},
			"file a/b is in a directory": func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Items: []corev1.KeyToPath{{Key: "level", Path: "a/b"}},
				}}}}
			},
			"GPUs in a subnet": func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuResource: resource.MustParse("1")}
			},
			"an ID beyond": func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1 << 40))}
			},
		} {
			r.cluster.SetConfigMap("settings", map[string]string{"level": "a"})
			pod := grouptest.NewPod("refused")
			change(pod)
			r.cluster.SetPod(pod)
			if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "not-to-be-shown") {
				t.Errorf("%s: %v", want, err)
			}
		}
		if n := r.world.Calls(acitest.ActionCreate); n != 0 {
			t.Errorf("%d creations were sent", n)
		}
	})
}

// On Windows groups have no volumes, not even that with the token, and one container.
func TestWindows(t *testing.T) {
	inBubble(t, func(c *Config) { c.OperatingSystem = "Windows" }, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("plain")
		pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
		r.create(t, pod)
		if p := r.group(t, "plain").Properties; len(p.Volumes) != 0 || len(p.Containers[0].Properties.VolumeMounts) != 0 {
			t.Errorf("the group has volumes: %+v", p)
		}
		for want, change := range map[string]func(*corev1.Pod){
			"emptyDir": func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			},
			"2 containers": func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Image: "side"})
			},
		} {
			pod := grouptest.NewPod("refused")
			change(pod)
			r.cluster.SetPod(pod)
			if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}

// A pod with what Kubernetes allows in names and values, and Azure does not.
func TestHostilePod(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("a--b." + strings.Repeat("x", 200) + "--c")
		long := strings.Repeat("A", 60) + "_SERVICE_HOST"
		value := "a\nb'\"\\$(id)\x01" + strings.Repeat("ü", 5000)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: long, Value: "10.0.0.1"}, {Name: "VALUE", Value: value}}
		pod.Spec.Containers[0].Command = []string{"", "--", value}
		pod.Spec.Volumes = []corev1.Volume{{Name: strings.Repeat("v", 63), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		r.create(t, pod)
		if s := r.status(t, pod); s.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v", s)
		}
		g := r.group(t, pod.Name)
		main := g.Properties.Containers[0].Properties
		if len(main.EnvironmentVariables) != 1 || *main.EnvironmentVariables[0].SecureValue != value || *main.Command[2] != value || strings.Contains(g.Name, "--") {
			t.Errorf("the group is %s, %+v", g.Name, main)
		}
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := len(r.world.Units(nil)); n != 0 {
			t.Errorf("%d groups are left", n)
		}
	})
}

// What the service answers to creations, and what becomes of the pods.
func TestCreationErrors(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("image")
		pod.Spec.Containers[0].Image = "inaccessible:1"
		r.cluster.SetPod(pod)
		err := r.CreatePod(t.Context(), pod)
		if delay, ok := errdefs.RetryAfter(err); !ok || delay < time.Minute || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "InaccessibleImage") {
			t.Errorf("an image that cannot be pulled: %v", err)
		}
		r.server.MaxGroups = 0
		other := grouptest.NewPod("quota")
		r.cluster.SetPod(other)
		err = r.CreatePod(t.Context(), other)
		if delay, ok := errdefs.RetryAfter(err); !ok || delay < time.Minute || !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "Limit: '0'") {
			t.Errorf("without a quota: %v", err)
		}
		r.server.MaxGroups = 10
		for code, want := range map[*grouptest.Refusal]func(error) bool{
			{Status: http.StatusBadRequest, Code: "InvalidImageName", Message: "no"}:                                errdefs.IsPermanent,
			{Status: http.StatusConflict, Code: "ContainerGroupTransitioning", Message: "no"}:                       errdefs.IsConflict,
			{Status: http.StatusInternalServerError, Code: "InternalServerError", Message: "no"}:                    errdefs.IsUnavailable,
			{Status: http.StatusForbidden, Code: "AuthorizationFailed", Message: strings.Repeat("long text ", 100)}: func(err error) bool { _, ok := errdefs.RetryAfter(err); return ok && len(err.Error()) < 700 },
			{Status: http.StatusNotFound, Code: "ResourceGroupNotFound", Message: "no"}:                             func(err error) bool { return !errdefs.IsNotFound(err) && !errdefs.IsPermanent(err) },
		} {
			r.world.Refuse(acitest.ActionCreate, 1, code)
			if err := r.CreatePod(t.Context(), other); !want(err) {
				t.Errorf("%s: %v", code.Code, err)
			}
			time.Sleep(time.Minute)
		}
		r.world.Refuse(acitest.ActionCreate, 1, grouptest.ErrQuota)
		err = r.CreatePod(t.Context(), other)
		if delay, _ := errdefs.RetryAfter(err); delay < 15*time.Second { // as Azure has asked
			t.Errorf("too many calls: %v, again after %s", err, delay)
		}
	})
}

func TestStatus(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("web")
		r.create(t, pod)
		if err := r.world.Exit("web", "main", 7); err != nil {
			t.Fatal(err)
		}
		s := r.status(t, pod).ContainerStatuses[0]
		if last := s.LastTerminationState.Terminated; s.RestartCount != 1 || s.State.Running == nil || last == nil || last.ExitCode != 7 {
			t.Errorf("after a restart the status is %+v", s)
		}
		// Azure waits before it starts a container again.
		now := r.world.Now()
		if err := r.world.Change("web", func(u *grouptest.Unit) {
			u.Containers[0].Now = podgroup.Run{State: podgroup.Terminated, ExitCode: 2, Started: now, Finished: now}
		}); err != nil {
			t.Fatal(err)
		}
		s = r.status(t, pod).ContainerStatuses[0]
		if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.LastTerminationState.Terminated.ExitCode != 2 {
			t.Errorf("between two runs the status is %+v", s)
		}
		failed := grouptest.NewPod("failed")
		r.cluster.SetPod(failed)
		if err := r.CreatePod(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
		if err := r.world.FailUnit("failed", "FailedPull", "the registry does not answer"); err != nil {
			t.Fatal(err)
		}
		// Azure goes on trying with such a group.
		waiting := r.status(t, failed)
		if s := waiting.ContainerStatuses[0].State.Waiting; waiting.Phase != corev1.PodPending || s == nil || s.Reason != "ProvisioningFailed" || !strings.Contains(s.Message, "the registry does not answer") {
			t.Errorf("a group that was not provisioned: %+v", waiting)
		}
		events := drain(r.cluster)
		if !strings.Contains(events, "the registry does not answer") {
			t.Errorf("the event of the group is not among the pod's: %s", events)
		}
		if strings.Count(events, "Warning ProvisioningFailed ") != 1 || !strings.Contains(events, "until the pod is deleted") {
			t.Errorf("no event, or more than one, says that the group may never run: %s", events)
		}
		now = r.world.Now() // Change holds the world's mutex
		if err := r.world.Change("failed", func(u *grouptest.Unit) {
			u.Phase, u.Ended = podgroup.Running, time.Time{}
			u.Containers[0].Now = podgroup.Run{State: podgroup.Executing, Started: now}
		}); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, failed); s.Phase != corev1.PodRunning {
			t.Errorf("a group that was provisioned late: %+v", s)
		}
	})
}

func drain(c *grouptest.Cluster) (all string) {
	for {
		select {
		case e := <-c.Events.Events:
			all += e + "\n"
		default:
			return all
		}
	}
}

func TestUnits(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &backend{cfg: testConfig()}
	view := func(policy aci.ContainerGroupRestartPolicy, state, instance string, now *aci.ContainerState) podgroup.Unit {
		g := &aci.ContainerGroup{Name: new("g"), Properties: &aci.ContainerGroupPropertiesProperties{
			ProvisioningState: &state, RestartPolicy: &policy, InstanceView: &aci.ContainerGroupPropertiesInstanceView{State: &instance},
			Containers: []*aci.Container{{Name: new("main"), Properties: &aci.ContainerProperties{Image: new("a"), InstanceView: &aci.ContainerPropertiesInstanceView{CurrentState: now}}}},
		}}
		return b.unit(g, &view{group: g, at: at})
	}
	ended := &aci.ContainerState{State: new("Terminated"), FinishTime: &at, DetailStatus: new("OOMKilled"), ExitCode: new(int32(137))}
	running := &aci.ContainerState{State: new("Running"), StartTime: &at}
	completed := &aci.ContainerState{State: new("Terminated"), DetailStatus: new("Completed")}
	for _, test := range []struct {
		policy          aci.ContainerGroupRestartPolicy
		state, instance string
		now             *aci.ContainerState
		want            podgroup.Phase
		run             podgroup.State
		reason          string
	}{
		{"Always", "Succeeded", "Running", running, podgroup.Running, podgroup.Executing, ""},
		{"Always", "Succeeded", "Failed", ended, podgroup.Running, podgroup.Waiting, "CrashLoopBackOff"},
		{"Always", "Repairing", "", nil, podgroup.Running, podgroup.Waiting, ""},
		{"Always", "Unhealthy", "Unavailable", running, podgroup.Running, podgroup.Executing, ""},
		{"Never", "Succeeded", "Failed", ended, podgroup.Failed, podgroup.Terminated, "OOMKilled"},
		{"Never", "Succeeded", "Succeeded", completed, podgroup.Succeeded, podgroup.Terminated, "Completed"},
		{"OnFailure", "Succeeded", "Running", ended, podgroup.Running, podgroup.Waiting, "CrashLoopBackOff"},
		{"Never", "Succeeded", "Failed", &aci.ContainerState{State: new("Failed")}, podgroup.Failed, podgroup.Terminated, "ContainerStatusUnknown"},
		{"Always", "Succeeded", "Stopped", ended, podgroup.Running, podgroup.Waiting, "Stopped"},
		{"Always", "Succeeded", "Stopped", nil, podgroup.Running, podgroup.Waiting, "Stopped"},
		{"OnFailure", "Succeeded", "Stopped", ended, podgroup.Failed, podgroup.Terminated, "OOMKilled"},
		{"OnFailure", "Succeeded", "Stopped", completed, podgroup.Succeeded, podgroup.Terminated, "Completed"},
		{"Never", "Succeeded", "Stopped", nil, podgroup.Failed, podgroup.Waiting, ""},
		{"Always", "Deleting", "Running", running, podgroup.Stopping, podgroup.Executing, ""},
		{"Always", "Canceled", "", nil, podgroup.Pending, podgroup.Waiting, "ProvisioningCanceled"},
		{"Never", "Failed", "Pending", &aci.ContainerState{State: new("Waiting"), DetailStatus: new("ErrImagePull")}, podgroup.Pending, podgroup.Waiting, "ErrImagePull"},
		{"Never", "Failed", "Running", running, podgroup.Running, podgroup.Executing, ""},
		{"OnFailure", "Succeeded", "Failed", ended, podgroup.Running, podgroup.Waiting, "CrashLoopBackOff"},
		{"Always", "Creating", "Pending", &aci.ContainerState{State: new("Waiting"), DetailStatus: new("ErrImagePull")}, podgroup.Pending, podgroup.Waiting, "ErrImagePull"},
	} {
		u := view(test.policy, test.state, test.instance, test.now)
		if now := u.Containers[0].Now; u.Phase != test.want || now.State != test.run || now.Reason != test.reason {
			t.Errorf("%s %s %s: phase %d, run %+v", test.policy, test.state, test.instance, u.Phase, now)
		}
		warned := slices.ContainsFunc(u.Events, func(e podgroup.Event) bool { return e.Reason == "Provisioning"+test.state })
		if want := u.Phase == podgroup.Pending && test.state != "Creating"; warned != want {
			t.Errorf("%s %s %s: the events are %+v", test.policy, test.state, test.instance, u.Events)
		}
	}
}

func TestReadiness(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	probe := &aci.ContainerProbe{InitialDelaySeconds: new(int32(20)), PeriodSeconds: new(int32(10))}
	failure := func(after time.Duration) []*aci.Event {
		return []*aci.Event{{Message: new("Readiness probe failed: no"), LastTimestamp: new(start.Add(after))}}
	}
	for _, test := range []struct {
		after  time.Duration
		events []*aci.Event
		want   bool
	}{
		{10 * time.Second, nil, false}, {31 * time.Second, nil, true}, {60 * time.Second, failure(55 * time.Second), false},
		{90 * time.Second, failure(55 * time.Second), true}, {31 * time.Second, failure(-time.Second), true},
	} {
		if got := isReady(probe, test.events, start, start.Add(test.after)); got != test.want {
			t.Errorf("after %s, events %v: %t", test.after, test.events, got)
		}
	}
}

func TestLogs(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("web")
		r.create(t, pod)
		for _, line := range []string{"one", "two", "three"} {
			time.Sleep(10 * time.Second)
			if err := r.world.Print("web", "main", line); err != nil {
				t.Fatal(err)
			}
		}
		for want, opts := range map[string]api.ContainerLogOpts{
			"two\nthree\n":  {Tail: 2},
			"three\n":       {SinceSeconds: 5},
			"two\nthree\n ": {SinceSeconds: 15, Tail: 2},
			"container main started\none\ntwo\nthree\n": {},
		} {
			stream, err := r.GetContainerLogs(t.Context(), "default", "web", "main", opts)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(stream)
			_ = stream.Close()
			if err != nil || string(text) != strings.TrimSuffix(want, " ") {
				t.Errorf("%+v: %q, %v", opts, text, err)
			}
		}
		stream, err := r.GetContainerLogs(t.Context(), "default", "web", "main", api.ContainerLogOpts{SinceSeconds: 5, Timestamps: true})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(stream)
		if stamp, line, _ := strings.Cut(string(text), " "); err != nil || line != "three\n" || len(stamp) < len(time.RFC3339)-5 {
			t.Errorf("with timestamps: %q, %v", text, err)
		}
	})
}

// The groups of the older provider have names of their own, an empty name of the cluster, and
// times in Go's form.
func TestOlderGroups(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("old")
		cpu, memory := 1.0, 1.5
		tags := map[string]string{
			"PodName": "old", "ClusterName": "", "NodeName": "vk", "Namespace": "default", "UID": string(pod.UID), "CreationTimestamp": "2026-01-02 03:04:05 +0000 UTC",
		}
		group := &acitest.Group{Name: "default-old", ContainerGroup: aci.ContainerGroup{Location: new(acitest.Region), Properties: &aci.ContainerGroupPropertiesProperties{
			OSType: new(aci.OperatingSystemTypesLinux),
			Containers: []*aci.Container{{Name: new("main"), Properties: &aci.ContainerProperties{
				Image: new("busybox:1"), Resources: &aci.ResourceRequirements{Requests: &aci.ResourceRequests{CPU: &cpu, MemoryInGB: &memory}},
			}}},
		}}}
		if _, err := r.world.Create(grouptest.Spec{Tags: tags, Containers: []podgroup.Container{{Name: "main", Image: "busybox:1"}}, Data: group}); err != nil {
			t.Fatal(err)
		}
		stranger := map[string]string{"PodName": "stranger", "ClusterName": "", "NodeName": "vk", "Namespace": "default", "UID": "of-another-cluster", "CreationTimestamp": ""}
		if _, err := r.world.Create(grouptest.Spec{Tags: stranger, Containers: []podgroup.Container{{Name: "main"}}, Data: &acitest.Group{Name: "default-stranger", ContainerGroup: group.ContainerGroup}}); err != nil {
			t.Fatal(err)
		}
		r.cluster.SetPod(pod)
		time.Sleep(time.Minute)
		pods, err := r.GetPods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Status.Phase != corev1.PodRunning || !pods[0].Status.StartTime.Equal(&pod.CreationTimestamp) {
			t.Fatalf("the pods are %v, %v", pods, err)
		}
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if units := r.world.Units(nil); len(units) != 1 || units[0].Tags["PodName"] != "stranger" {
			t.Errorf("the groups are %v", units)
		}
	})
}

// A creation finds the group that an earlier one has made, in any state, and none of another pod.
func TestGroupExists(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("web")
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}}
		r.create(t, pod)
		if s := r.status(t, pod); s.Phase != corev1.PodRunning {
			t.Fatalf("the status is %+v", s)
		}
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if err := r.world.Change("web", func(u *grouptest.Unit) { u.Tags[podgroup.TagUID] = "another" }); err != nil {
			t.Fatal(err)
		}
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsConflict(err) {
			t.Errorf("a group of another pod: %v", err)
		}
		if n := r.world.Calls(acitest.ActionCreate); n != 1 {
			t.Errorf("there were %d creations", n)
		}
	})
}

// Lists may lack groups that exist.
func TestStaleList(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("job")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		pod = pod.DeepCopy()
		pod.Status = *r.status(t, pod)
		r.cluster.SetPod(pod)
		r.server.Stale = true
		for range 5 {
			time.Sleep(time.Minute)
			if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
				t.Fatalf("the list is empty, and the pods are %v, %v", pods, err)
			}
		}
		r.world.Refuse(acitest.ActionGet, 1, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalServerError"})
		time.Sleep(time.Minute)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			t.Errorf("the list is empty, the group cannot be read, and the pods are %v, %v", pods, err)
		}
		r.start(t, nil) // it has seen nothing yet
		if pods, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "exists") {
			t.Errorf("the list is empty after a start, and the pods are %v, %v", pods, err)
		}
		if err := r.world.Remove("job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 0 {
			t.Errorf("after the group was removed: %v, %v", pods, err)
		}
	})
}

// A group that Azure fails to read, at once or by not answering, keeps nobody from the others.
func TestUnreadableGroup(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		pods := map[string]*corev1.Pod{}
		for _, name := range []string{"bad", "good", "last"} {
			pod := grouptest.NewPod(name)
			r.create(t, pod)
			pod = pod.DeepCopy()
			pod.Status = *r.status(t, pod)
			r.cluster.SetPod(pod)
			pods[name] = pod
		}
		check := func(when string, want int) {
			t.Helper()
			time.Sleep(time.Minute)
			start := time.Now()
			found, err := r.GetPods(t.Context())
			if err != nil || len(found) != want || time.Since(start) > 20*time.Second {
				t.Fatalf("%s: %d pods, %v, after %s", when, len(found), err, time.Since(start))
			}
			for _, pod := range found {
				if pod.Status.Phase != corev1.PodRunning {
					t.Errorf("%s: pod %s is %+v", when, pod.Name, pod.Status)
				}
			}
			if err := r.Ping(t.Context()); err != nil {
				t.Errorf("%s: the node is not ready: %v", when, err)
			}
		}
		r.world.Delay(acitest.ActionGet, 1, time.Hour)
		r.start(t, nil)
		check("one read is not answered", 3)
		r.server.Unreadable = r.group(t, "bad").Name
		check("a group can no longer be read", 3)
		r.start(t, nil)
		check("a group cannot be read", 3)
		if err := r.DeletePod(t.Context(), pods["good"]); err != nil {
			t.Fatal(err)
		}
		check("another one was deleted", 2)
		r.server.Stale = true
		check("the list is empty", 2)
		r.server.Stale, r.server.Unreadable = false, ""
		if err := r.world.Exit("bad", "main", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := r.status(t, pods["bad"]); s.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("once it can be read again the status is %+v", s)
		}
	})
}

// A node with 300 groups keeps to its reads, and sees changes all the same.
func TestCalls(t *testing.T) {
	inBubble(t, func(c *Config) { c.ReadsPerMinute = 40 }, func(t *testing.T, r *rig) {
		r.world.SetQuota("", 400)
		var pods []*corev1.Pod
		for i := range 100 {
			pod := grouptest.NewPod(fmt.Sprintf("pod-%d", i))
			pods = append(pods, pod)
			r.cluster.SetPod(pod)
			for r.CreatePod(t.Context(), pod) != nil {
				time.Sleep(time.Second)
			}
			time.Sleep(500 * time.Millisecond)
		}
		listen := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Second) {
				if _, err := r.GetPods(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		listen(5 * time.Minute)
		before := r.world.Calls(acitest.ActionGet)
		listen(time.Minute)
		if n := r.world.Calls(acitest.ActionGet) - before; n > 50 || n < 20 {
			t.Errorf("%d groups were read in a minute, and 40 may be", n)
		}
		t.Logf("a minute with 100 groups: %d reads of groups", r.world.Calls(acitest.ActionGet)-before)
		if err := r.world.Exit(pods[17].Name, "main", 1); err != nil {
			t.Fatal(err)
		}
		listen(4 * time.Minute)
		if s, err := r.GetPodStatusByUID(t.Context(), "default", pods[17].Name, pods[17].UID); err != nil || s.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("a restart is not seen: %+v, %v", s, err)
		}
		if n := r.world.Refused(); n != 0 {
			t.Errorf("%d calls were refused", n)
		}
	})
}

// After a start all groups are read before any is shown: without its state a pod would seem
// not to run. That takes as long as the budget says, and is not undone by a refusal.
func TestStartWithManyGroups(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for i := range 250 {
			pod := grouptest.NewPod(fmt.Sprintf("pod-%d", i))
			r.cluster.SetPod(pod)
			for r.CreatePod(t.Context(), pod) != nil {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		r.start(t, func(c *Config) { c.ReadsPerMinute = 60 })
		r.world.Refuse(acitest.ActionGet, 1, grouptest.ErrQuota)
		start := time.Now()
		for {
			pods, err := r.GetPods(t.Context())
			if err == nil {
				for _, pod := range pods {
					if pod.Status.Phase != corev1.PodRunning {
						t.Fatalf("pod %s is %s", pod.Name, pod.Status.Phase)
					}
				}
				if len(pods) != 250 {
					t.Errorf("there are %d pods", len(pods))
				}
				break
			}
			if _, later := errdefs.RetryAfter(err); !later {
				t.Fatal(err)
			}
			if err := r.Ping(t.Context()); err != nil {
				t.Fatalf("the node is not ready: %v", err)
			}
			if time.Since(start) > 10*time.Minute {
				t.Fatalf("after ten minutes there is no list: %v", err)
			}
			time.Sleep(5 * time.Second)
		}
		if d := time.Since(start); d < 3*time.Minute {
			t.Errorf("it took %s", d)
		}
	})
}

// A start where Azure answers no read does not wait for each group, and groups that lists lack are
// read within the budget.
func TestManyUnreadableGroups(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		const groups = 200
		for i := range groups {
			pod := grouptest.NewPod(fmt.Sprintf("pod-%d", i))
			r.cluster.SetPod(pod)
			for r.CreatePod(t.Context(), pod) != nil {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		r.start(t, func(c *Config) { c.ReadsPerMinute = 600 })
		r.world.Delay(acitest.ActionGet, 20, time.Hour)
		start := time.Now()
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != groups || time.Since(start) > 30*time.Second {
			t.Fatalf("%d pods, %v, after %s", len(pods), err, time.Since(start))
		}
		r.start(t, func(c *Config) { c.ReadsPerMinute = 60 })
		for time.Since(start) < time.Hour { // until all are read
			time.Sleep(time.Minute)
			if _, err := r.GetPods(t.Context()); err == nil {
				break
			}
		}
		time.Sleep(time.Minute)
		r.server.Stale = true
		before := r.world.Calls(acitest.ActionGet)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != groups {
			t.Errorf("the list is empty, and there are %d pods, %v", len(pods), err)
		}
		if n := r.world.Calls(acitest.ActionGet) - before; n == 0 || n > 10 {
			t.Errorf("%d reads at once", n)
		}
	})
}

func TestReport(t *testing.T) {
	inBubble(t, func(c *Config) { c.VNetName, c.SubnetName = "", "" }, func(t *testing.T, r *rig) {
		r.server.MaxGroups = 70
		var node *corev1.Node
		r.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { node = n })
		if err := r.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if node == nil || node.Status.Capacity.Pods().Value() != 70 || node.Status.Allocatable.Cpu().Value() != 100 || node.Status.Capacity.Memory().String() != "4Ti" {
			t.Fatalf("the node is %+v", node)
		}
		// What the region publishes is no reason for a refusal: it may be out of date.
		pod := func(name, cpus string) *corev1.Pod {
			pod := grouptest.NewPod(name)
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
			return pod
		}
		r.create(t, pod("beyond", "5"))
		// It explains that of Azure, which says that a retry may help.
		large, old := pod("large", "8"), pod("old", "1")
		old.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuResource: resource.MustParse("1")}
		old.Annotations = map[string]string{annotationGPU: "K80"}
		for want, pod := range map[string]*corev1.Pod{"publishes 4, 16 and 0 as the most": large, "publishes no GPUs of type K80": old} {
			r.cluster.SetPod(pod)
			err := r.CreatePod(t.Context(), pod)
			if delay, _ := errdefs.RetryAfter(err); delay < time.Minute || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "not available in the location") || !strings.Contains(err.Error(), want) {
				t.Errorf("pod %s: %v", pod.Name, err)
			}
		}
		r.world.Delay(acitest.ActionUsage, 1, time.Hour)
		time.Sleep(reportInterval)
		if start := time.Now(); r.Ping(t.Context()) != nil || time.Since(start) > 2*reportTimeout {
			t.Errorf("quotas that are not read keep a ping waiting for %s", time.Since(start))
		}
		r.world.Refuse(acitest.ActionUsage, 1, &grouptest.Refusal{Status: http.StatusForbidden, Code: "AuthorizationFailed"})
		time.Sleep(reportInterval)
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("quotas that cannot be read make the node not ready: %v", err)
		}
	})
}

func TestStandbyPool(t *testing.T) {
	id := func(kind string) string { return "/subscriptions/s/resourceGroups/g/providers/" + kind + "/one" }
	inBubble(t, func(c *Config) {
		c.StandbyPool, c.ContainerGroupProfile, c.ProfileRevision = id("Microsoft.StandbyPool/standbyContainerGroupPools"), id("Microsoft.ContainerInstance/containerGroupProfiles"), 3
	}, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("fast")
		r.create(t, pod)
		if got := r.server.Standby(); got != id("Microsoft.StandbyPool/standbyContainerGroupPools")+" "+id("Microsoft.ContainerInstance/containerGroupProfiles")+" 3" {
			t.Errorf("the pool is %q", got)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v", s)
		}
	})
}

// A list that breaks off, and one whose token has ended.
func TestPages(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.server.PageSize = 3
		for i := range 10 {
			r.create(t, grouptest.NewPod(fmt.Sprintf("pod-%d", i)))
		}
		time.Sleep(time.Minute)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 10 {
			t.Fatalf("%d pods, %v", len(pods), err)
		}
		time.Sleep(time.Minute)
		r.world.Refuse(acitest.ActionGet, 100, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalServerError"})
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 10 || pods[0].Status.Phase != corev1.PodRunning {
			t.Errorf("while groups cannot be read: %d pods, %v", len(pods), err)
		}
	})
}

// The suite checks what becomes of a node in another place. A subscription or a resource group is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	add := func(change func(*Config)) {
		cfg := testConfig()
		change(&cfg)
		b, err := newBackend(cfg, connect(acitest.New(grouptest.New(0))))
		if err != nil {
			t.Fatal(err)
		}
		places[b.options().Place] = true
	}
	add(func(*Config) {})
	add(func(c *Config) { c.ResourceGroup = "another" })
	add(func(c *Config) { c.SubscriptionID = strings.ReplaceAll(c.SubscriptionID, "0", "9") })
	if len(places) != 3 {
		t.Errorf("the places of three configurations are %v", places)
	}
	add(func(c *Config) { c.Region = "northeurope" }) // lists are those of the resource group
	add(func(c *Config) { c.ResourceGroup = strings.ToUpper(c.ResourceGroup) })
	if len(places) != 3 {
		t.Errorf("another region, or another case, is another place: %v", places)
	}
}
