package fargate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

// pods is a provider before a fake, in virtual time.
type pods struct {
	*testing.T
	*podgroup.Provider
	world   *grouptest.World
	server  *ecstest.Server
	cluster *grouptest.Cluster
	backend *backend
}

func onNode(t *testing.T, change func(*Config), test func(n *pods)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		if change != nil {
			change(&cfg)
		}
		n := &pods{T: t, world: grouptest.New(time.Second), cluster: grouptest.NewCluster("home")}
		n.server = ecstest.New(n.world)
		n.backend = connect(t, n.server, cfg)
		p, err := newProvider(n.cluster.Config(), n.backend)
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		n.Provider = p
		test(n)
	})
}

// another returns the provider of another process, or with a cluster other than n's of another node.
func (n *pods) another(cluster nodeutil.ProviderConfig, cfg Config) *podgroup.Provider {
	n.Helper()
	p, err := newProvider(cluster, connect(n.T, n.server, cfg))
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { grouptest.Close(n.T, p) })
	return p
}

// run creates a pod, whose variables may differ from those in the API, and returns its task.
func (n *pods) run(pod *corev1.Pod, resolved ...func(*corev1.Pod)) ecstest.Task {
	n.Helper()
	n.cluster.SetPod(pod)
	pod = pod.DeepCopy()
	for _, f := range resolved {
		f(pod)
	}
	if err := n.CreatePod(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	u, err := n.world.OfPod(pod.Name)
	if err != nil {
		n.Fatal(err)
	}
	return u.Spec.Data.(ecstest.Task)
}

func (n *pods) phase(pod *corev1.Pod) *corev1.PodStatus {
	n.Helper()
	time.Sleep(10 * time.Second)
	status, err := n.GetPodStatusByUID(n.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		n.Fatal(err)
	}
	return status
}

// secrets returns the secrets without the key of the node, which stays.
func (n *pods) secrets() map[string]string {
	all := n.server.Secrets()
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasSuffix(name, "-"+keySecret) })
	return all
}

func (n *pods) id(pod *corev1.Pod) string {
	n.Helper()
	u, err := n.world.OfPod(pod.Name)
	if err != nil {
		n.Fatal(err)
	}
	return u.ID
}

func (n *pods) remove(pods ...*corev1.Pod) {
	n.Helper()
	for _, pod := range pods {
		if err := n.DeletePod(n.Context(), pod); err != nil {
			n.Fatal(err)
		}
		n.cluster.RemovePod(pod)
	}
	time.Sleep(10 * time.Second)
}

func definitionOf(t ecstest.Task, container string) types.ContainerDefinition {
	for _, c := range t.Definition.ContainerDefinitions {
		if *c.Name == container {
			return c
		}
	}
	return types.ContainerDefinition{}
}

func dependencies(c types.ContainerDefinition) (list []string) {
	for _, d := range c.DependsOn {
		list = append(list, *d.ContainerName+" "+string(d.Condition))
	}
	return list
}

func TestPlan(t *testing.T) {
	onNode(t, func(c *Config) {
		c.CPUArchitecture, c.PlatformVersion, c.Tags, c.AssignPublicIPv4Address = "ARM64", "1.4.0", map[string]string{"team": "blue"}, true
		c.RegistryCredentials = map[string]string{"quay.io": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:quay-abc"}
	}, func(n *pods) {
		client := n.cluster.Client().CoreV1()
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: "fs-12345678::fsap-1"},
		}}}
		if _, err := client.PersistentVolumeClaims("default").Create(n.Context(), claim, metav1.CreateOptions{}); err != nil {
			n.Fatal(err)
		}
		if _, err := client.PersistentVolumes().Create(n.Context(), volume, metav1.CreateOptions{}); err != nil {
			n.Fatal(err)
		}
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 30}
		pod := grouptest.NewPod("full")
		pod.Annotations = map[string]string{annotationRole: "web-role"}
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000))}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "share", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "fs-87654321.efs.eu-west-1.amazonaws.com", Path: "/pods", ReadOnly: true}}},
		}
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox"}, {Name: "proxy", Image: "envoy", RestartPolicy: &always}, {Name: "migrate", Image: "busybox"}}
		pod.Spec.Containers[0] = corev1.Container{
			Name: "main", Image: "quay.io/web:1", Command: []string{"web"}, Args: []string{"-v"}, WorkingDir: "/srv", ReadinessProbe: probe,
			Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
			Env:   []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceEphemeralStorage: resource.MustParse("30Gi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("700Mi")},
			},
			SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(7)), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SYS_PTRACE"}}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}, {Name: "data", MountPath: "/data", ReadOnly: true}, {Name: "share", MountPath: "/share"}},
		}
		task := n.run(pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Env[1] = corev1.EnvVar{Name: "POD", Value: "full"} })
		d, main := task.Definition, definitionOf(task, "main")
		if *d.Cpu != "512" || *d.Memory != "1024" || *d.TaskRoleArn != "web-role" || *d.ExecutionRoleArn != roleARN || d.EphemeralStorage.SizeInGiB != 30 || d.RuntimePlatform.CpuArchitecture != "ARM64" ||
			n.cluster.Node.Status.NodeInfo.Architecture != "arm64" || !task.Run.EnableExecuteCommand || *task.Run.PlatformVersion != "1.4.0" || task.Run.NetworkConfiguration.AwsvpcConfiguration.AssignPublicIp != "ENABLED" {
			n.Errorf("the definition is %+v", d)
		}
		if *main.User != "7:2000" || !*main.ReadonlyRootFilesystem || main.LinuxParameters.Capabilities.Drop[0] != "ALL" || *main.Memory != 700 || main.Cpu != 307 || *main.StopTimeout != 120 ||
			main.EntryPoint[0] != "web" || main.Command[0] != "-v" || *main.WorkingDirectory != "/srv" || len(main.PortMappings) != 2 || main.PortMappings[1].Protocol != "udp" ||
			*main.HealthCheck.Interval != 5 || *main.HealthCheck.Timeout != 2 || *main.HealthCheck.Retries != 10 || *main.RestartPolicy.RestartAttemptPeriod != 60 ||
			!strings.Contains(*main.RepositoryCredentials.CredentialsParameter, "quay-abc") {
			n.Errorf("the container is %+v", main)
		}
		if got := dependencies(main); !slices.Equal(got, []string{"setup SUCCESS", "proxy START", "migrate SUCCESS"}) {
			n.Errorf("main depends on %v", got)
		}
		if proxy := definitionOf(task, "proxy"); proxy.RestartPolicy == nil || *proxy.Essential || *proxy.User != "1000:2000" || !slices.Equal(dependencies(proxy), []string{"setup SUCCESS"}) {
			n.Errorf("the sidecar is %+v", proxy)
		}
		efs := d.Volumes[1].EfsVolumeConfiguration
		if len(d.Volumes) != 3 || *efs.FileSystemId != "fs-12345678" || *efs.AuthorizationConfig.AccessPointId != "fsap-1" || efs.TransitEncryption != "ENABLED" || *main.MountPoints[0].ReadOnly || !*main.MountPoints[1].ReadOnly || !*main.MountPoints[2].ReadOnly ||
			*d.Volumes[2].EfsVolumeConfiguration.FileSystemId != "fs-87654321" || *d.Volumes[2].EfsVolumeConfiguration.RootDirectory != "/pods" {
			n.Errorf("the volumes are %+v", d.Volumes)
		}
		if env := n.server.Environment(task, "main"); env["COLOUR"] != "blue" || env["POD"] != "full" || len(main.Environment) != 1 {
			n.Errorf("the variables are %v", env)
		}
		if status := n.phase(pod); status.Phase != corev1.PodRunning || status.PodIP == "" || status.ContainerStatuses[0].Ready || len(status.InitContainerStatuses) != 3 {
			n.Errorf("the status is %+v", status) // no health is known yet
		}
		events := strings.Join(drain(n.cluster.Events.Events), "\n")
		if !strings.Contains(events, "SizeRoundedUp") || !strings.Contains(events, "terminationGracePeriodSeconds 600") || !strings.Contains(events, "init containers") {
			n.Errorf("the events are %s", events)
		}
	})
}

func drain(events chan string) (list []string) {
	for {
		select {
		case e := <-events:
			list = append(list, e)
		default:
			return list
		}
	}
}

// Definitions are shared by pods that differ in nothing but variables about themselves, and go
// with the last of them.
func TestDefinitionsDoNotPileUp(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		var pods []*corev1.Pod
		for i := range 3 {
			pod := grouptest.NewPod(fmt.Sprintf("web-%d", i))
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
			task := n.run(pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", Value: pod.Name}} })
			if env := n.server.Environment(task, "main"); env["POD"] != pod.Name {
				n.Errorf("the variables of %s are %v", pod.Name, env)
			}
			pods = append(pods, pod)
		}
		if names := n.server.Definitions(); len(names) != 1 || n.world.Calls("RegisterTaskDefinition") != 1 {
			n.Errorf("%d registrations, definitions %v", n.world.Calls("RegisterTaskDefinition"), names)
		}
		n.remove(pods[:2]...)
		if names := n.server.Definitions(); len(names) != 1 {
			n.Errorf("definitions while a pod is left: %v", names)
		}
		n.remove(pods[2])
		if names := n.server.Definitions(); len(names) != 0 {
			n.Errorf("definitions at the end: %v", names)
		}
		again := pods[0].DeepCopy()
		again.UID = "another"
		n.run(again)
		if names := n.server.Definitions(); len(names) != 1 {
			n.Errorf("definitions of a pod that comes again: %v", names)
		}
		// Others may deregister it.
		n.server.Deregister()
		late := grouptest.NewPod("late")
		late.Spec = *again.Spec.DeepCopy()
		n.run(late)
	})
}

// Limits of CPUs, which ECS does not have, may be more than the task has.
func TestLimitsOfCPUs(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("two")
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Image: "b"})
		cpu := func(text string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
		}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("100m"), Limits: cpu("1")}
		pod.Spec.Containers[1].Resources = corev1.ResourceRequirements{Requests: cpu("900m")}
		if d := n.run(pod).Definition; *d.Cpu != "1024" {
			n.Errorf("%s", *d.Cpu)
		}
	})
}

// What a process has left over that ended between two calls is found.
func TestDefinitionsWithoutTasks(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.world.Refuse("RunTask", 1, &grouptest.Refusal{Status: 400, Code: "InvalidParameterException", Message: "no such subnet"})
		pod := grouptest.NewPod("refused")
		n.cluster.SetPod(pod)
		if err := n.CreatePod(n.Context(), pod); err == nil {
			n.Fatal(err)
		}
		n.cluster.RemovePod(pod)
		if names := n.server.Definitions(); len(names) != 1 {
			n.Fatalf("%v", names)
		}
		for i := range 120 { // on the first page of families
			kept := grouptest.NewPod(fmt.Sprintf("kept-%d", i))
			kept.Spec.Containers[0].Image = kept.Name
			n.cluster.SetPod(kept)
			if err := n.CreatePod(n.Context(), kept); err != nil {
				n.Fatal(err)
			}
		}
		for i := range 20 {
			if err := n.server.Leave(fmt.Sprintf("%sleft-%d", n.backend.uses.prefix, i)); err != nil {
				n.Fatal(err)
			}
		}
		other := grouptest.NewPod("other")
		other.Spec.Containers[0].Image = "other"
		n.run(other)
		for range 200 { // as a controller asks
			n.phase(other)
		}
		if names := n.server.Definitions(); len(names) != 121 {
			n.Errorf("definitions after an hour: %d", len(names))
		}
	})
}

// More kinds of pods than may be registered at once wait for their turn.
func TestManyKindsOfPods(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.world.SetQuota("RegisterTaskDefinition", 60+modifyBurst)
		start := time.Now()
		for i := range 50 {
			pod := grouptest.NewPod(fmt.Sprintf("kind-%d", i))
			pod.Spec.Containers[0].Image = pod.Name
			n.cluster.SetPod(pod)
			if err := n.CreatePod(n.Context(), pod); err != nil {
				n.Fatal(err)
			}
		}
		if took := time.Since(start); n.world.Refused() != 0 || took < 30*time.Second || took > time.Minute {
			n.Errorf("%d refusals, %s", n.world.Refused(), took)
		}
	})
}

func TestSpot(t *testing.T) {
	onNode(t, func(c *Config) {
		c.CapacityProviders = []CapacityProvider{{Name: "FARGATE_SPOT", Weight: 3}, {Name: "FARGATE", Weight: 1, Base: 1}}
	}, func(n *pods) {
		pod, other := grouptest.NewPod("spot"), grouptest.NewPod("demand")
		task := n.run(pod)
		if s := task.Run.CapacityProviderStrategy; len(s) != 2 || *s[0].CapacityProvider != "FARGATE_SPOT" || s[0].Weight != 3 || s[1].Base != 1 || task.Run.LaunchType != "" {
			n.Errorf("%+v", s)
		}
		other.Annotations = map[string]string{annotationCapacity: "FARGATE"}
		if s := n.run(other).Run.CapacityProviderStrategy; len(s) != 1 || *s[0].CapacityProvider != "FARGATE" {
			n.Errorf("%+v", s)
		}
		if err := n.server.Interrupt(pod.Name); err != nil {
			n.Fatal(err)
		}
		status := n.phase(pod)
		isTarget := func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		}
		if status.Phase != corev1.PodFailed || status.Reason != "SpotInterruption" || !slices.ContainsFunc(status.Conditions, isTarget) {
			n.Errorf("%+v", status)
		}
	})
}

func TestProbes(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}}
		ready, live := grouptest.NewPod("ready"), grouptest.NewPod("live")
		ready.Spec.Containers[0].ReadinessProbe, live.Spec.Containers[0].LivenessProbe = probe, probe
		n.run(ready)
		n.run(live)
		for _, health := range []string{"HEALTHY", "UNHEALTHY"} {
			n.server.SetHealth(n.id(ready), "main", health)
			if status := n.phase(ready); status.Phase != corev1.PodRunning || status.ContainerStatuses[0].Ready != (health == "HEALTHY") {
				n.Errorf("%s: %+v", health, status)
			}
		}
		if status := n.phase(live); status.Phase != corev1.PodRunning || !status.ContainerStatuses[0].Ready {
			n.Errorf("while it lives: %+v", status)
		}
		n.server.SetHealth(n.id(live), "main", "UNHEALTHY")
		n.phase(live)
		if status := n.phase(live); status.Phase != corev1.PodFailed || status.Reason != "Unhealthy" {
			n.Errorf("after it has failed: %+v", status)
		}
	})
}

// A task whose init container has failed may be PENDING for ever: it is stopped, and its pod fails.
func TestInitContainerThatFails(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("blocked")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}, {Name: "second", Image: "busybox:1"}}
		n.run(pod)
		if status := n.phase(pod); status.Phase != corev1.PodRunning {
			n.Fatalf("%+v", status)
		}
		err := n.world.Change("blocked", func(u *grouptest.Unit) {
			u.Phase = podgroup.Pending
			u.Containers[0].Now = podgroup.Run{State: podgroup.Terminated, ExitCode: 3, Started: u.Created, Finished: time.Now()}
			u.Containers[1].Now, u.Containers[2].Now = podgroup.Run{}, podgroup.Run{}
		})
		if err != nil {
			n.Fatal(err)
		}
		n.phase(pod)
		status := n.phase(pod)
		if status.Phase != corev1.PodFailed || status.Reason != "InitContainerFailed" || status.InitContainerStatuses[0].State.Terminated.ExitCode != 3 {
			n.Errorf("%+v", status)
		}
		if calls := n.world.Calls("StopTask"); calls != 1 {
			n.Errorf("%d calls to stop it", calls)
		}
	})
}

// Tasks of the older provider have no tags: their pod is in the name of the definition, and its
// UID in what has started them.
func TestTasksOfTheOlderProvider(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod, stranger := grouptest.NewPod("old"), grouptest.NewPod("stranger")
		for _, of := range []*corev1.Pod{pod, stranger} {
			family := "vk-podspec_" + ecstest.Cluster + "_default_" + of.Name
			container := types.ContainerDefinition{Name: new("main"), Image: new("nginx"), Essential: new(true)}
			_, err := n.backend.api.RegisterTaskDefinition(n.Context(), &ecs.RegisterTaskDefinitionInput{
				Family: &family, Cpu: new("256"), Memory: new("512"), NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate},
				ContainerDefinitions: []types.ContainerDefinition{container},
			})
			if err == nil {
				_, err = n.backend.api.RunTask(n.Context(), &ecs.RunTaskInput{
					Cluster: new(ecstest.Cluster), TaskDefinition: &family, Count: new(int32(1)), LaunchType: types.LaunchTypeFargate, StartedBy: new(string(of.UID)),
					NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{Subnets: []string{"subnet-1"}}},
				})
			}
			if err != nil {
				n.Fatal(err)
			}
		}
		n.cluster.SetPod(pod)
		status := n.phase(pod)
		if status.Phase != corev1.PodRunning || status.ContainerStatuses[0].State.Running == nil {
			n.Errorf("the status is %+v", status)
		}
		if pods, err := n.GetPods(n.Context()); err != nil || len(pods) != 1 || pods[0].UID != pod.UID {
			n.Errorf("the pods are %v, %v: the other one is not this cluster's", pods, err)
		}
		u := &podgroup.Unit{ID: "arn:aws:ecs:eu-west-1:123456789012:task/home/7", Data: taskData{definition: "arn:aws:ecs:eu-west-1:123456789012:task-definition/vk-podspec_home_default_old:1"}}
		if got := stream(u, "main"); got != "vk-podspec_home_default_old/main/7" {
			n.Errorf("its log is %s", got)
		}
		n.remove(pod)
		if names := n.server.Definitions(); len(names) != 1 || !strings.HasSuffix(names[0], "stranger") {
			n.Errorf("%v", names)
		}
	})
}

func TestClusterThatDoesNotExist(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.RemoveCluster()
		if err := n.Ping(n.Context()); err != nil || n.world.Calls("CreateCluster") != 1 {
			n.Errorf("%v, %d calls", err, n.world.Calls("CreateCluster"))
		}
		n.run(grouptest.NewPod("first"))
	})
}

func TestRefused(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.cluster.SetSecret("login", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"username": "u", "password": "hush"}}}`)})
		volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
			return func(pod *corev1.Pod) { pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
		}
		exec := func(word string) *corev1.Probe {
			return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{word}}}}
		}
		for want, change := range map[string]func(*corev1.Pod){
			"volumes[v].configMap":       volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
			"volumes[v].hostPath":        volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			"volumes[v].emptyDir.medium": volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory"}}),
			"only file systems of EFS":   volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example", Path: "/"}}),
			"httpGet": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}}
			},
			"two different probes": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].ReadinessProbe = exec("a"), exec("b")
			},
			"NET_ADMIN": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
			},
			"restartPolicy Never with 2": func(pod *corev1.Pod) {
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Image: "b"})
			},
			"nothing is sold": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("17")}
			},
			"200 GiB": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Ti")}
			},
			"SPOT": func(pod *corev1.Pod) { pod.Annotations = map[string]string{annotationCapacity: "SPOT"} },
			"registry.example": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Image = "registry.example/a"
				pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}}
			},
		} {
			pod := grouptest.NewPod("refused")
			change(pod)
			n.cluster.SetPod(pod)
			if err := n.CreatePod(n.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
				n.Errorf("%s: %v", want, err)
			}
		}
		if calls := n.world.Calls("RunTask") + n.world.Calls("RegisterTaskDefinition"); calls != 0 {
			n.Errorf("%d calls", calls)
		}
	})
}

// What has no capacity waits.
func TestCapacity(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("broken")
		n.cluster.SetPod(pod)
		n.world.Refuse("RunTask", 1, &grouptest.Refusal{Status: 400, Code: "ClientException", Message: "Capacity is unavailable at this time. Please try again later or in a different availability zone"})
		if err := n.CreatePod(n.Context(), pod); errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "Capacity") {
			n.Errorf("%v", err)
		}
		time.Sleep(2 * time.Minute)
		n.run(pod)
	})
}

// hidden are words that must be in no definition, tag or call but those of Secrets Manager.
func TestSecretsAreKept(t *testing.T) {
	onNode(t, func(c *Config) { c.SecretsManager, c.FilesImage = true, "busybox" }, func(n *pods) {
		n.cluster.SetSecret("login", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"username": "u", "password": "hush-login"}}}`)})
		n.cluster.SetSecret("key", corev1.SecretTypeOpaque, map[string][]byte{"pem": []byte("hush-file")})
		pod := grouptest.NewPod("careful")
		main := &pod.Spec.Containers[0]
		main.Image, pod.Spec.ImagePullSecrets = "registry.example/a", []corev1.LocalObjectReference{{Name: "login"}}
		ref := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}
		main.Env = []corev1.EnvVar{{Name: "PLAIN", Value: "open"}, {Name: "SECRET", ValueFrom: ref}, {Name: "DERIVED", Value: "x-$(SECRET)"}}
		main.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "key", MountPath: "/key"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}}}
		resolve := func(pod *corev1.Pod) {
			pod.Spec.Containers[0].EnvFrom = nil
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PLAIN", Value: "open"}, {Name: "SECRET", Value: "hush-1"}, {Name: "DERIVED", Value: "x-hush-1"}, {Name: "FROM_ALL", Value: "hush-2"}}
		}
		task := n.run(pod, resolve)
		if text := fmt.Sprintf("%s %s", asJSON(n, task.Definition), asJSON(n, task.Run)); strings.Contains(text, "hush") || !strings.Contains(text, "open") {
			n.Errorf("the task is %s", text)
		}
		if env := n.server.Environment(task, "main"); env["PLAIN"] != "open" || env["SECRET"] != "hush-1" || env["DERIVED"] != "x-hush-1" || env["FROM_ALL"] != "hush-2" {
			n.Errorf("the variables are %v", env)
		}
		if files := n.server.Environment(task, filesContainer)[filesVariable]; files == "" || !strings.Contains(asJSON(n, n.secrets()), "hush-login") {
			n.Errorf("the secrets are %v", n.secrets())
		}
		if r := definitionOf(task, "main").RepositoryCredentials; r == nil || !strings.Contains(*r.CredentialsParameter, ":secret:") {
			n.Errorf("the credentials are %+v", r)
		}
		n.server.Deregister()
		again := pod.DeepCopy()
		again.Name, again.UID = "again", "another"
		if env := n.server.Environment(n.run(again, resolve), "main"); env["SECRET"] != "hush-1" {
			n.Errorf("the variables of a pod whose secrets were deleted are %v", env)
		}
		shown := grouptest.NewPod("shown")
		shown.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", ValueFrom: ref}}
		shown.Spec.Containers[0].Args = []string{"--password=$(SECRET)"}
		n.cluster.SetPod(shown)
		resolved := shown.DeepCopy()
		resolved.Spec.Containers[0].Env, resolved.Spec.Containers[0].Args = []corev1.EnvVar{{Name: "SECRET", Value: "hush"}}, []string{"--password=hush"}
		if err := n.CreatePod(n.Context(), resolved); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "$(SECRET)") || strings.Contains(err.Error(), "hush") {
			n.Errorf("a secret in the arguments: %v", err)
		}
		n.remove(pod, again)
		if left := n.secrets(); len(left) != 0 || len(n.server.Definitions()) != 0 {
			n.Errorf("left over: %d secrets, %v", len(left), n.server.Definitions())
		}
	})
}

// The script of the container that writes files, on this machine.
func TestFiles(t *testing.T) {
	var packed string
	var mounts []types.MountPoint
	onNode(t, func(c *Config) { c.FilesImage = "busybox" }, func(n *pods) {
		n.cluster.SetConfigMap("settings", map[string]string{"size": "big\n", "it's": "'odd' \"$HOME\" \x01"})
		pod := grouptest.NewPod("files")
		pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: new(int32(0o400)),
		}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
		task := n.run(pod)
		packed, mounts = n.server.Environment(task, filesContainer)[filesVariable], definitionOf(task, filesContainer).MountPoints
		if main := definitionOf(task, "main"); !slices.Equal(dependencies(main), []string{filesContainer + " SUCCESS"}) || !*main.MountPoints[0].ReadOnly {
			n.Errorf("%+v", main)
		}
		if status := n.phase(pod); status.Phase != corev1.PodRunning || len(status.InitContainerStatuses) != 0 || len(status.ContainerStatuses) != 1 {
			n.Errorf("%+v", status)
		}
	})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), "sh", "-c", strings.ReplaceAll(filesScript, filesPath, dir)) // #nosec G204 -- of a test
	cmd.Env = append(os.Environ(), filesVariable+"="+packed)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"size": "big\n", "it's": "'odd' \"$HOME\" \x01"} {
		path := filepath.Join(dir, "conf", name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want || info.Mode().Perm() != 0o400 {
			t.Errorf("%s is %q, mode %v, %v", name, got, info.Mode(), err)
		}
	}
	if *mounts[0].ContainerPath != filesPath+"/conf" {
		t.Errorf("%v", mounts)
	}
}

func asJSON(n *pods, value any) string {
	n.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}
