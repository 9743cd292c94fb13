//go:build integration

package chart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// patience is how long a test waits for what should take a moment.
const patience = 5 * time.Minute

// world is a control plane without machines. Of its pods those of releases are played: a
// process for each runs the program of the container, with its arguments and the rights of
// its service account.
type world struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plane, err := controlplane.Start(ctx, controlplane.Options{Binary: filepath.Join(bin, "controlplane")})
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })
	client, err := kubernetes.NewForConfig(plane.Config())
	must(t, err)
	return &world{plane, client}
}

// shell runs commands of the notes as somebody who has the programs, and returns what they print.
func (w *world) shell(t *testing.T, dir, commands string) (string, error) {
	t.Helper()
	programs, err := filepath.Abs(bin)
	must(t, err)
	kubectl := "#!/bin/sh\nexec " + filepath.Join(programs, "controlplane") + " kubectl \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(w.Kubectl(ctx).Env, "PATH="+dir+":"+programs+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eventually polls until a condition holds, or fails with the last state.
func eventually(t *testing.T, what string, condition func() (bool, string)) {
	t.Helper()
	var state string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (ok bool, _ error) {
		ok, state = condition()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("waited for: %s: %v; last seen: %s", what, err, state)
	}
}

// player plays the pods of a namespace.
type player struct {
	*world
	t         *testing.T
	namespace string
	dir       string // has the files of /etc/virtual-kubelet

	mu      sync.Mutex
	played  map[types.UID]*daemon.Process
	started int
}

// play plays pods until the test ends.
func (w *world) play(t *testing.T, namespace string) *player {
	t.Helper()
	p := &player{world: w, t: t, namespace: namespace, dir: t.TempDir(), played: map[types.UID]*daemon.Process{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := p.sync(ctx); err != nil && ctx.Err() == nil {
				t.Log(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, process := range p.played {
			_ = process.Stop(os.Kill) // fails if it has ended
		}
	})
	return p
}

// sync starts and stops processes as there are pods, and brings their files up to date.
func (p *player) sync(ctx context.Context) error {
	pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=virtual-kubelet"})
	if err != nil {
		return err
	}
	if err := p.mount(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	there := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		there[pod.UID] = true
		if p.played[pod.UID] == nil {
			err = errors.Join(err, p.start(ctx, pod))
		}
	}
	for uid, process := range p.played {
		if !there[uid] {
			err = errors.Join(err, process.Stop(syscall.SIGTERM))
			delete(p.played, uid)
		}
	}
	return err
}

// mount writes the files of ConfigMaps that have changed.
func (p *player) mount(ctx context.Context) error {
	maps, err := p.client.CoreV1().ConfigMaps(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=virtual-kubelet"})
	if err != nil {
		return err
	}
	for _, config := range maps.Items {
		for name, content := range config.Data {
			file := filepath.Join(p.dir, name)
			if is, err := os.ReadFile(file); err == nil && string(is) == content {
				continue
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// start starts the process of a pod, and makes the pod one that is ready.
func (p *player) start(ctx context.Context, pod *corev1.Pod) error {
	token, err := p.client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	admin := p.Config()
	kubeconfig := filepath.Join(p.dir, string(pod.UID))
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	}, kubeconfig); err != nil {
		return err
	}
	identity, err := p.mountIdentity(ctx, pod)
	if err != nil {
		return err
	}
	args := []string{"--port=0"}
	if !identity {
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	paths := strings.NewReplacer("/etc/virtual-kubelet", p.dir, "/var/lib/virtual-kubelet", filepath.Join(p.dir, string(pod.UID)+"-certificates"))
	for _, arg := range pod.Spec.Containers[0].Args {
		args = append(args, paths.Replace(arg))
	}
	cmd := exec.Command(filepath.Join(bin, "virtual-kubelet"), args...)
	cmd.Env = append(os.Environ(), "VKUBELET_POD_UID="+string(pod.UID))
	var log lockedbuffer.Buffer
	process, err := daemon.Launch(cmd, &log)
	if err != nil {
		return err
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("log of pod %s:\n%s", pod.Name, log.String())
		}
	})
	p.played[pod.UID] = process
	p.started++
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(p.namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// mountIdentity writes the files of the Secret with a node's own identity, and reports whether
// the pod has one. It has then no token of its service account.
func (p *player) mountIdentity(ctx context.Context, pod *corev1.Pod) (bool, error) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "identity" })
	if i < 0 {
		return false, nil
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil }) {
		return false, fmt.Errorf("pod %s has a token of its service account, too", pod.Name)
	}
	secret, err := p.client.CoreV1().Secrets(p.namespace).Get(ctx, pod.Spec.Volumes[i].Secret.SecretName, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	dir := p.dir + "-identity"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return false, err
		}
	}
	return true, nil
}

// starts returns how many processes were started, and how many of them run.
func (p *player) starts() (started, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, len(p.played)
}

// awaitReady waits until nodes are Ready.
func (w *world) awaitReady(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, "node "+name+" is Ready", func() (bool, string) {
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && ready(node), fmt.Sprint(err, node)
		})
	}
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// watchNode records whether a node stays Ready, until the function that it returns is
// called, which fails the test if it did not.
func (w *world) watchNode(t *testing.T, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(t, err)
	done := make(chan struct{})
	var lapses []string
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok && ctx.Err() == nil || ok && !ready(node) {
				lapses = append(lapses, fmt.Sprintf("%s %v", event.Type, event.Object))
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		events.Stop()
		<-done
		if len(lapses) > 0 {
			t.Errorf("node %s was not Ready all the time: %d times, at first %s", name, len(lapses), lapses[0])
		}
	}
}

// rolledOut waits until all pods of a workload are those of its last template.
func (p *player) rolledOut(name string) {
	p.t.Helper()
	eventually(p.t, name+" is rolled out", func() (bool, string) {
		deployment, err := p.client.AppsV1().Deployments(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		_, running := p.starts()
		return isRolledOut(deployment) && running == int(*deployment.Spec.Replicas), fmt.Sprintf("%d processes, %+v", running, deployment.Status)
	})
}

func isRolledOut(d *appsv1.Deployment) bool {
	s, want := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

// gone reports whether an error says that there is no such object.
func gone(err error) bool { return apierrors.IsNotFound(err) }
