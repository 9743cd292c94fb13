package zun

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/internal/wire"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
)

// rig is a provider before a fake.
type rig struct {
	*podgroup.Provider
	world   *grouptest.World
	cluster *grouptest.Cluster
	server  *zuntest.Server
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		world := grouptest.New(time.Second)
		r := &rig{world: world, cluster: grouptest.NewCluster("home"), server: zuntest.New(world)}
		cfg := testConfig()
		cfg.Networks, cfg.AvailabilityZone, cfg.ImagePullPolicy = []string{"86f0b398-414f-4e6a-b569-21d3452eb769"}, "nova", true
		p, err := newProvider(r.cluster.Config(), cfg, connect(t, r.server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { grouptest.Close(t, p) })
		r.Provider = p
		test(t, r)
	})
}

func (r *rig) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	r.cluster.SetPod(pod)
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
}

func (r *rig) status(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	time.Sleep(5 * time.Second)
	status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// With another name of the cluster no capsule is the node's: its pods are not gone.
func TestAnotherClusterName(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("there")
		r.create(t, pod)
		pod.Status = *r.status(t, pod)
		r.cluster.SetPod(pod)
		cfg := testConfig()
		cfg.ClusterName = "other"
		p, err := newProvider(r.cluster.Config(), cfg, connect(t, r.server))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		grouptest.CheckUnfound(t, p, "clusterName was changed")
		if err := r.world.Remove("there"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if all, err := p.GetPods(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("the capsule is gone, and there are %d pods, %v", len(all), err)
		}
	})
}

// The suite checks what becomes of a node in another place. A cloud, a region or a project is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	add := func(change func(*Config)) {
		cfg := testConfig()
		change(&cfg)
		b, err := newBackend(cfg, http.DefaultTransport)
		if err != nil {
			t.Fatal(err)
		}
		places[b.options().Place] = true
	}
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.ProjectName = "another" },
		func(c *Config) { c.ProjectName, c.ProjectID = "", "86f0b398414f4e6ab56921d3452eb769" },
		func(c *Config) { c.Region = "another" },
		func(c *Config) { c.AuthURL = "http://another.test/v3" },
	} {
		add(change)
	}
	if len(places) != 5 {
		t.Errorf("the places of five configurations are %v", places)
	}
	add(func(c *Config) { c.Password = "another" })
	add(func(c *Config) { c.AuthURL += "/" })
	if len(places) != 5 {
		t.Errorf("another password, or a slash, is another place: %v", places)
	}
}

const volumeID = "0f7a1c5e-6a58-4a51-8f3b-0d2c9a7b1e42"

func TestTemplate(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		client := r.cluster.Client().CoreV1()
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "cinder.csi.openstack.org", VolumeHandle: volumeID},
		}}}
		if _, err := client.PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := grouptest.NewPod("full")
		limit := resource.MustParse("1500Mi")
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}},
			{Name: "unused", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			}}}},
		}
		scratch := corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"}
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox", Command: []string{"true"}, VolumeMounts: []corev1.VolumeMount{scratch}}}
		pod.Spec.Containers[0] = corev1.Container{
			Name: "main", Image: "nginx:1", Command: []string{"nginx"}, Args: []string{"-g", "daemon off;"}, WorkingDir: "/srv", ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}}, Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100M")},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "d", MountPath: "/data"}, scratch, {Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
			},
		}
		r.create(t, pod)
		u, err := r.world.OfPod("full")
		if err != nil {
			t.Fatal(err)
		}
		got := u.Spec.Data.(*wire.Template)
		main := got.Spec.Containers[0]
		if got.Spec.RestartPolicy != "Always" || got.AvailabilityZone != "nova" || got.Nets[0]["network"] == "" || main.Image != "nginx:1" ||
			!slices.Equal(append(main.Command, main.Args...), []string{"nginx", "-g", "daemon off;"}) || main.WorkDir != "/srv" || main.Env["COLOUR"] != "blue" || main.ImagePullPolicy != "ifnotpresent" ||
			main.Ports[0].ContainerPort != 80 || main.Resources.Requests.CPU != 0.25 || main.Resources.Requests.Memory != 96 {
			t.Errorf("the template is %+v", got)
		}
		if len(got.Spec.Volumes) != 2 || got.Spec.Volumes[0].Cinder.VolumeID != volumeID || got.Spec.Volumes[1].Cinder.Size != 2 || !got.Spec.Volumes[1].Cinder.AutoRemove {
			t.Errorf("the volumes are %+v", got.Spec.Volumes)
		}
		status := r.status(t, pod)
		if status.Phase != corev1.PodRunning || status.PodIP == "" || status.InitContainerStatuses[0].State.Terminated == nil || !status.ContainerStatuses[0].Ready {
			t.Errorf("the status is %+v", status)
		}
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.cluster.SetSecret("login", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"username": "u", "password": "hush"}}}`)})
		for want, change := range map[string]func(*corev1.Pod){
			"volumes[c].configMap": func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
			},
			"volumeMounts[e].readOnly": func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/e", ReadOnly: true}}
			},
			"volumeMounts[e] at a second path": func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/e"}, {Name: "e", MountPath: "/f"}}
			},
			"protocol SCTP": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9, Protocol: corev1.ProtocolSCTP}}
			},
			"env[KUBERNETES_CONTAINER_NAME]": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: wire.EnvName, Value: "other"}}
			},
			"fieldRef.fieldPath": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
			},
			"credentials of registries": func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Image = "registry.example/a"
				pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}}
			},
		} {
			pod := grouptest.NewPod("refused")
			change(pod)
			r.cluster.SetPod(pod)
			if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.HasPrefix(err.Error(), "ProviderNotSupported: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v", want, err)
			}
		}
		if n := r.world.Calls(zuntest.ActionCreate); n != 0 {
			t.Errorf("%d creations", n)
		}
	})
}

// Capsules of the older provider are taken over: their labels have no name of the cluster,
// and their containers no name of the pod's.
func TestCapsulesOfTheOlderProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod, stranger := grouptest.NewPod("old"), grouptest.NewPod("stranger")
		for _, of := range []*corev1.Pod{pod, stranger} {
			template := &wire.Template{Kind: "capsule"}
			template.Metadata.Name, template.Spec.Containers = "default-"+of.Name, []wire.Container{{Image: "busybox:1"}}
			_, err := r.world.Create(grouptest.Spec{
				Tags: map[string]string{"PodName": of.Name, "ClusterName": "", "NodeName": "vk", "Namespace": "default", "UID": string(of.UID), "CreationTimestamp": of.CreationTimestamp.String()},
				Data: template, Containers: []podgroup.Container{{Name: "container-0", Image: "busybox:1"}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.cluster.SetPod(pod)
		status := r.status(t, pod)
		if status.Phase != corev1.PodRunning || len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].Name != "main" || status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("the status is %+v", status)
		}
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].UID != pod.UID {
			t.Errorf("the pods are %v, %v: the other one is not this cluster's", pods, err)
		}
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
}

func TestTokensAreRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("long")
		r.create(t, pod)
		r.server.EndTokens()
		if status := r.status(t, pod); status.Phase != corev1.PodRunning || r.world.Calls(zuntest.ActionToken) != 2 {
			t.Errorf("%+v after %d tokens", status, r.world.Calls(zuntest.ActionToken))
		}
		r.server.EndTokens()
		r.world.Refuse(zuntest.ActionToken, 1, &grouptest.Refusal{Status: http.StatusUnauthorized, Message: "the password has changed"})
		time.Sleep(5 * time.Second)
		_, err := r.GetPods(t.Context())
		if delay, ok := errdefs.RetryAfter(err); !ok || delay < time.Minute || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), zuntest.Password) {
			t.Errorf("a password that Keystone refuses: %v", err)
		}
	})
}

// Newer versions of Zun do not find containers of capsules by themselves.
func TestHiddenContainers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.server.HideContainers = true
		pod := grouptest.NewPod("hidden")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		r.status(t, pod)
		if log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{}); err == nil || !strings.Contains(err.Error(), "does not show containers of capsules") {
			t.Errorf("%v, %v", log, err)
		}
		if err := r.world.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		before := r.world.Calls(zuntest.ActionShow)
		status := r.status(t, pod)
		if end := status.ContainerStatuses[0].State.Terminated; status.Phase != corev1.PodFailed || end == nil || end.Reason != "ContainerStatusUnknown" {
			t.Errorf("a container of which Zun does not say how it ended: %+v", status)
		}
		r.status(t, pod)
		if n := r.world.Calls(zuntest.ActionShow) - before; n != 1 {
			t.Errorf("it was asked for %d times", n)
		}
	})
}

func TestCapsuleThatCannotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("broken")
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := r.world.FailUnit(pod.Name, "NoValidHost", "There are not enough hosts available."); err != nil {
			t.Fatal(err)
		}
		if status := r.status(t, pod); status.Phase != corev1.PodFailed || status.Reason != "CapsuleError" || !strings.Contains(status.Message, "not enough hosts") {
			t.Errorf("the status is %+v", status)
		}
	})
}

// stream is a client that only reads.
type stream struct {
	api.AttachIO
	out bytes.Buffer
	tty bool
}

func (s *stream) Stdin() io.Reader       { return nil }
func (s *stream) Stdout() io.WriteCloser { return nopCloser{&s.out} }
func (s *stream) TTY() bool              { return s.tty }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestExec(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("exec")
		r.create(t, pod)
		var s stream
		words := []string{"sh", "-c", `echo "it's" $HOME`}
		if err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", words, &s); err != nil || s.out.String() != strings.Join(words, "|") {
			t.Errorf("%q, %v", s.out.String(), err)
		}
		r.server.Shell = func(string, []string) (string, int) { return "no\n", 3 }
		err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", words, &s)
		if end, ok := err.(utilexec.ExitError); !ok || end.ExitStatus() != 3 {
			t.Errorf("a command that ended with 3: %v", err)
		}
		if err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", words, &stream{tty: true}); err == nil || !strings.Contains(err.Error(), "-t") {
			t.Errorf("a terminal: %v", err)
		}
	})
}
