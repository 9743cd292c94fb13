//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// ownedByNode selects the remote objects of the home node.
var ownedByNode = metav1.ListOptions{LabelSelector: translate.Home{Cluster: "home", Node: homeNode}.NodeSelector()}

// TestAcross has two clusters, with the rights of deploy on both sides: at home those
// that print-rbac prints and those for claims and Services, in the remote cluster those
// of the file. A request without a right fails the test, and so does a right that no
// request needs, except those of print-rbac, which package integration checks.
func TestAcross(t *testing.T) {
	t.Parallel() // it mostly waits
	home, askedHome := startAudited(t)
	remote, askedRemote := startAudited(t)
	startMock(t, remote, "remote-1")
	homeClient := newClient(t, home.as(home.account("kubernetes-rbac.yaml")))
	home.grant("kubernetes-claims-rbac.yaml")
	home.grant("kubernetes-services-rbac.yaml")
	access := remoteOf(remote, remote.account("kubernetes-remote-rbac.yaml"))
	cfg := configOf(t, access, `
namespaces: {mapping: prefix, prefix: home-, create: true}
evicted: restart
storageClasses: {remote: fast, hasty: fast, remote-at-once: fast}
deleteClaims: true
services: true
stats: kubelets
capacity: {source: nodes}
podIPs: [{remote: 10.244.0.0/16, home: 10.99.0.0/16}]
`)
	virtual := startVirtual(t, homeClient, cfg)
	w := &world{t: t, home: home, remote: remote, namespaces: translate.Namespaces{Mapping: translate.Prefixed, Prefix: "home-"}}

	t.Run("capacity", func(t *testing.T) {
		eventually(t, "the node has what the remote one has", func(ctx context.Context) error {
			n, err := home.client.CoreV1().Nodes().Get(ctx, homeNode, metav1.GetOptions{})
			if err == nil && n.Status.Capacity.Pods().Value() != 1000 {
				err = fmt.Errorf("it has %v", n.Status.Capacity)
			}
			return err
		})
	})
	t.Run("in a pod of the remote cluster", w.testInCluster)
	t.Run("clash", w.testNameConflict)
	t.Run("clash of copies", w.testCopyConflict)
	t.Run("not supported", w.testNotSupported)
	restart := func(meanwhile func()) {
		virtual.end()
		meanwhile()
		// Later an API server is started again, which has no roles at first.
		if strings.Contains(virtual.log.String(), "forbidden: User") {
			t.Errorf("a right is missing in deploy:\n%s", virtual.log.String())
		}
		virtual = startVirtual(t, homeClient, cfg) // ends with t, not with a subtest
	}
	t.Run("claim", w.testClaim)
	t.Run("immediate claim", w.testImmediateClaim)
	t.Run("services", w.testServices)
	t.Run("commands", w.testCommands)
	t.Run("taken away", w.testTakenAway)
	t.Run("taken away unseen", func(t *testing.T) { w.testTakenAwayUnseen(t, restart) })
	t.Run("deployment", w.testDeployment)
	t.Run("taken back", func(t *testing.T) { w.testMetadataRemoved(t, restart, askedRemote.changesOf) })
	t.Run("reflection", func(t *testing.T) { w.testReflection(t, restart) })
	t.Run("nothing is left", w.testNothingLeft)
	virtual.end()
	virtual = startVirtual(t, homeClient, configOf(t, access, `
namespaces: {mapping: fixed, name: guests}
capacity: {source: quota, interval: 1s}
stats: metrics
`))
	t.Run("quota", w.testQuota)
	t.Run("field manager", askedRemote.wantWrites)
	t.Run("every right is used", func(t *testing.T) {
		askedRemote.wantUsed(t, rightsOf(t, "kubernetes-remote-rbac.yaml", "events", "nodes", "pods"))
		askedHome.wantUsed(t, rightsOf(t, "kubernetes-claims-rbac.yaml", "persistentvolumeclaims", "persistentvolumes"))
		askedHome.wantUsed(t, rightsOf(t, "kubernetes-services-rbac.yaml", "endpointslices"))
	})
}

// world is a home cluster and a remote cluster.
type world struct {
	t            *testing.T
	home, remote *cluster
	namespaces   translate.Namespaces
	// isService is true if the remote cluster is a service, which has no statistics, and
	// cannot resize pods or add containers.
	isService bool
}

// at returns the namespace and name of the remote pod of one in the default namespace.
func (w *world) at(t *testing.T, name string) types.NamespacedName {
	t.Helper()
	at, err := (&translate.Options{Namespaces: w.namespaces}).PodName("default", name)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// pod creates a pod for the virtual node in the default namespace.
func (w *world) pod(t *testing.T, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      homeNode,
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers:                    []corev1.Container{{Name: "main", Image: "example.com/app:1"}},
		},
	}
	if change != nil {
		change(pod)
	}
	eventually(t, "the service account is there", func(ctx context.Context) error {
		_, err := w.home.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	pod, err := w.home.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func (w *world) delete(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := w.home.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone on both sides", func(ctx context.Context) error {
		if now, err := w.home.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("at home: %v, %+v", err, now.Status)
		}
		_, err := w.remotePod(ctx, pod.UID)
		if err == nil {
			return errors.New("the remote pod is there")
		}
		return nil
	})
}

// waitNothingOf waits until what was copied for a pod is deleted, as it is after the pod.
func (w *world) waitNothingOf(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "what was copied for the pod is gone", func(ctx context.Context) error {
		left, err := w.remote.client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{LabelSelector: translate.LabelUID + "=" + string(pod.UID)})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("there are %d Secrets", len(left.Items))
		}
		return err
	})
}

func (w *world) waitRunning(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var now *corev1.Pod
	eventually(t, "the pod is ready", func(ctx context.Context) (err error) {
		if now, err = w.home.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", now.Status)
	})
	return now
}

// remotePod returns the remote pod of a home pod.
func (w *world) remotePod(ctx context.Context, uid types.UID) (*corev1.Pod, error) {
	list, err := w.remote.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: translate.LabelUID + "=" + string(uid)})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d remote pods", len(list.Items))
	}
	return &list.Items[0], nil
}

// waitEvent waits for an event on a home object whose message or reason contains text.
func (w *world) waitEvent(t *testing.T, of metav1.Object, text string) {
	t.Helper()
	eventually(t, "an event says "+text, func(ctx context.Context) error {
		seen, err := w.events(ctx, of)
		if err == nil && !strings.Contains(seen, text) {
			err = fmt.Errorf("there are %s", seen)
		}
		return err
	})
}

// events returns the events on a home object, a line each.
func (w *world) events(ctx context.Context, of metav1.Object) (string, error) {
	events, err := w.home.client.CoreV1().Events(of.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(of.GetUID())})
	if err != nil {
		return "", err
	}
	var seen []string
	for _, e := range events.Items {
		seen = append(seen, e.Reason+" "+e.Message)
	}
	return strings.Join(seen, "\n"), nil
}

// A remote pod of somebody else stays as it is, and an event on the home pod says so.
func (w *world) testNameConflict(t *testing.T) {
	taken := w.at(t, "taken")
	namespace := taken.Namespace
	_, err := w.remote.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	eventually(t, "the remote service account is there", func(ctx context.Context) error {
		_, err := w.remote.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: taken.Name}, Spec: corev1.PodSpec{
		NodeName: "no-such-node", Containers: []corev1.Container{{Name: "main", Image: "example.com/foreign:1"}}}}
	other, err = w.remote.client.CoreV1().Pods(namespace).Create(t.Context(), other, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := w.pod(t, "taken", nil)
	w.waitEvent(t, pod, "left alone")
	if err := w.home.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	// All work on the pod is done once another pod has been created and deleted.
	w.delete(t, w.waitRunning(t, w.pod(t, "other", nil)))
	w.waitNothingOf(t, pod)
	now, err := w.remote.client.CoreV1().Pods(namespace).Get(t.Context(), taken.Name, metav1.GetOptions{})
	if err != nil || now.UID != other.UID || now.DeletionTimestamp != nil || len(now.Labels) > 0 {
		t.Errorf("the pod of somebody else was touched: %v %+v", err, now)
	}
	if err := w.remote.client.CoreV1().Pods(namespace).Delete(t.Context(), taken.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) testNotSupported(t *testing.T) {
	w.home.applyText(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: other, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	pod := w.pod(t, "claims", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	w.waitEvent(t, pod, `ProviderNotSupported: persistentvolumeclaim "data" has storage class "other"`)
	w.delete(t, pod)
}

// testReflection changes a Secret, also during a restart of the node.
func (w *world) testReflection(t *testing.T, restart func(meanwhile func())) {
	secrets := w.home.client.CoreV1().Secrets("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"key": []byte("one"), "old": []byte("x")}}
	secret, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := w.pod(t, "reads", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key"}}}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
	})
	now := w.waitRunning(t, pod)
	if !strings.HasPrefix(now.Status.PodIP, "10.99.") {
		t.Errorf("the pod's address is %s, want one of 10.99.0.0/16", now.Status.PodIP)
	}
	far, err := w.remotePod(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	if text := far.String(); strings.Contains(text, `"one"`) {
		t.Error("the value of a Secret is in the remote pod")
	}
	copied := func(ctx context.Context) (*corev1.Secret, error) {
		return w.remote.client.CoreV1().Secrets(far.Namespace).Get(ctx, far.Spec.Volumes[0].Secret.SecretName, metav1.GetOptions{})
	}
	rotate := func(value string) {
		t.Helper()
		secret.Data = map[string][]byte{"key": []byte(value)}
		if secret, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the copy is "+value, func(ctx context.Context) error {
			c, err := copied(ctx)
			if err == nil && (string(c.Data["key"]) != value || len(c.Data) != 1) {
				err = fmt.Errorf("it is %q", c.Data)
			}
			return err
		})
	}
	rotate("two")

	// The token is one of the home pod.
	var token string
	files, err := w.remote.client.CoreV1().Secrets(far.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: translate.LabelUID + "=" + string(pod.UID)})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range files.Items {
		for _, value := range s.Data {
			if strings.Count(string(value), ".") == 2 && len(value) > 200 {
				token = string(value)
			}
		}
	}
	if _, err := newClient(t, w.home.as(token)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the token of the remote pod the home cluster says %v, want that its service account may not", err)
	}

	if out, err := w.home.Kubectl(t.Context(), "logs", "reads").CombinedOutput(); err != nil {
		t.Errorf("kubectl logs: %v: %s", err, out)
	}
	if out, err := w.home.Kubectl(t.Context(), "exec", "reads", "--", "sh", "-c", "echo far; exit 7").CombinedOutput(); err == nil || !strings.Contains(string(out), "far") || !strings.Contains(string(out), "7") {
		t.Errorf("kubectl exec: %v: %s", err, out)
	}

	restart(func() { w.kubectl(t, "label", "pod", "reads", "moved=yes") })
	eventually(t, "the remote pod has the label of meanwhile", func(ctx context.Context) error {
		now, err := w.remotePod(ctx, pod.UID)
		if err == nil && now.Labels["moved"] != "yes" {
			err = fmt.Errorf("it has %v", now.Labels)
		}
		return err
	})
	rotate("three")
	if again, err := w.remotePod(t.Context(), pod.UID); err != nil || again.UID != far.UID {
		t.Errorf("the remote pod is another after a restart of the node: %v", err)
	}
	// A copy that somebody deletes is written again with the next change.
	if err := w.remote.client.CoreV1().Secrets(far.Namespace).Delete(t.Context(), far.Spec.Volumes[0].Secret.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	rotate("again")
	// In an outage the node is not ready, and the pod stays.
	forced := w.waitRunning(t, w.pod(t, "forced-in-the-outage", nil))
	if err := w.remote.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is not ready", func(ctx context.Context) error { return w.nodeReady(ctx, corev1.ConditionFalse) })
	secret.Data["key"] = []byte("four")
	if _, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	short := w.pod(t, "born-in-the-outage", nil)
	w.kubectl(t, "delete", "pod", forced.Name, "--force", "--grace-period=0")
	if err := w.remote.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is ready", func(ctx context.Context) error { return w.nodeReady(ctx, corev1.ConditionTrue) })
	if now := w.waitRunning(t, pod); now.UID != pod.UID {
		t.Error("the pod is another after an outage")
	}
	eventually(t, "the copy is four", func(ctx context.Context) error {
		c, err := copied(ctx)
		if err == nil && string(c.Data["key"]) != "four" {
			err = fmt.Errorf("it is %q", c.Data)
		}
		return err
	})
	if again, err := w.remotePod(t.Context(), pod.UID); err != nil || again.UID != far.UID {
		t.Errorf("the remote pod is another after an outage: %v", err)
	}
	w.delete(t, forced)
	w.waitRunning(t, short)
	w.delete(t, short)
	w.delete(t, pod)
	eventually(t, "the copy is gone", func(ctx context.Context) error {
		if _, err := copied(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

func (w *world) nodeReady(ctx context.Context, want corev1.ConditionStatus) error {
	n, err := w.home.client.CoreV1().Nodes().Get(ctx, homeNode, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == want {
			return nil
		}
	}
	return fmt.Errorf("%+v", n.Status.Conditions)
}

// A pod that is deleted in the remote cluster is created again, and counts a restart.
func (w *world) testTakenAway(t *testing.T) {
	pod := w.pod(t, "back", nil)
	w.waitRunning(t, pod)
	far, err := w.remotePod(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.remote.client.CoreV1().Pods(far.Namespace).Delete(t.Context(), far.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	w.waitRestarted(t, pod, 1)
	w.delete(t, pod)

	// As a kubelet ends a pod that is deleted or drained: first it gets a terminal
	// phase.
	pod = w.pod(t, "drained", nil)
	w.waitRunning(t, pod)
	if far, err = w.remotePod(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	finalizers := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata": {"finalizers": ` + value + `}}`)
		if _, err := w.remote.client.CoreV1().Pods(far.Namespace).Patch(t.Context(), far.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/hold"]`)
	if err := w.remote.client.CoreV1().Pods(far.Namespace).Delete(t.Context(), far.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the remote pod has ended, and is there", func(ctx context.Context) error {
		now, err := w.remote.client.CoreV1().Pods(far.Namespace).Get(ctx, far.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status.Phase = corev1.PodSucceeded
		now.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		_, err = w.remote.client.CoreV1().Pods(far.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	eventually(t, "the pod waits", func(ctx context.Context) error {
		now, err := w.home.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && (now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].State.Waiting == nil) {
			err = fmt.Errorf("%+v", now.Status)
		}
		return err
	})
	finalizers("null")
	w.waitRestarted(t, pod, 1)
	w.delete(t, pod)
}

// So is a pod that is deleted there while no node runs at home, with all that it needs.
// A pod with restartPolicy Never has failed.
func (w *world) testTakenAwayUnseen(t *testing.T, restart func(meanwhile func())) {
	w.home.applyText(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOR: blue}
`)
	back := w.pod(t, "back-unseen", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	})
	once := w.pod(t, "once", func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever })
	pods := []*corev1.Pod{w.waitRunning(t, back), w.waitRunning(t, once)}
	restart(func() {
		for _, pod := range pods {
			far, err := w.remotePod(t.Context(), pod.UID)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.remote.client.CoreV1().Pods(far.Namespace).Delete(t.Context(), far.Name, *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			secrets := w.remote.client.CoreV1().Secrets(far.Namespace)
			if err := secrets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: translate.LabelUID + "=" + string(pod.UID)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	w.waitRestarted(t, back, 1)
	far, err := w.remotePod(t.Context(), back.UID)
	if err != nil {
		t.Fatal(err)
	}
	var color *corev1.SecretKeySelector
	for _, v := range far.Spec.Containers[0].Env {
		if v.Name == "COLOR" {
			color = v.ValueFrom.SecretKeyRef
		}
	}
	if color == nil {
		t.Fatalf("the new remote pod has not the variable: %+v", far.Spec.Containers[0].Env)
	}
	env, err := w.remote.client.CoreV1().Secrets(far.Namespace).Get(t.Context(), color.Name, metav1.GetOptions{})
	if err != nil || string(env.Data[color.Key]) != "blue" {
		t.Errorf("the new remote pod's variable is %q, %v", env.Data[color.Key], err)
	}
	eventually(t, "the pod that is never restarted has ended", func(ctx context.Context) error {
		now, err := w.home.client.CoreV1().Pods(once.Namespace).Get(ctx, once.Name, metav1.GetOptions{})
		if err != nil || now.Status.Phase == corev1.PodFailed {
			return err
		}
		// A deletion without grace takes two steps, between which the remote node may have ended the container and reported that.
		if s := now.Status; s.Phase != corev1.PodSucceeded || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated == nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if _, err := w.remotePod(t.Context(), once.UID); err == nil {
		t.Error("the pod that is never restarted runs again")
	}
	w.delete(t, back)
	w.delete(t, once)
}

// waitRestarted waits until a pod runs whose container has this restart count.
func (w *world) waitRestarted(t *testing.T, pod *corev1.Pod, restarts int32) {
	t.Helper()
	eventually(t, "the pod runs again", func(ctx context.Context) error {
		now, err := w.home.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := now.Status.ContainerStatuses; now.UID != pod.UID || len(s) != 1 || s[0].RestartCount != restarts || s[0].State.Running == nil {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	w.waitEvent(t, pod, "RemotePodReplaced")
}

// A Deployment of 50 pods is rolled out again, and deleted.
func (w *world) testDeployment(t *testing.T) {
	const replicas = 50
	deployments := w.home.client.AppsV1().Deployments("default")
	labels := map[string]string{"app": "many"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](5),
					Containers:                    []corev1.Container{{Name: "main", Image: "example.com/app:1"}},
				},
			},
		},
	}
	d, err := deployments.Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rolled := func(image string) {
		t.Helper()
		eventually(t, "the Deployment is rolled", func(ctx context.Context) error {
			now, err := deployments.Get(ctx, d.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := now.Status; s.ObservedGeneration < now.Generation || s.UpdatedReplicas != replicas || s.ReadyReplicas != replicas || s.Replicas != replicas {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		eventually(t, "the remote pods are those", func(ctx context.Context) error {
			list, err := w.remote.client.CoreV1().Pods("").List(ctx, ownedByNode)
			if err != nil {
				return err
			}
			uids := map[string]int{}
			for _, pod := range list.Items {
				uids[pod.Labels[translate.LabelUID]]++
				if got := pod.Spec.Containers[0].Image; got != image {
					return fmt.Errorf("pod %s has image %s", pod.Name, got)
				}
			}
			if len(list.Items) != replicas || len(uids) != replicas {
				return fmt.Errorf("there are %d, of %d at home", len(list.Items), len(uids))
			}
			return nil
		})
	}
	rolled("example.com/app:1")
	if d, err = deployments.Get(t.Context(), d.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2"
	if d, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rolled("example.com/app:2")
	if out, err := w.home.Kubectl(t.Context(), "get", "--raw", "/api/v1/nodes/"+homeNode+"/proxy/stats/summary").CombinedOutput(); !w.isService && (err != nil || strings.Count(string(out), `"podRef"`) != replicas) {
		t.Errorf("the statistics of %d pods: %v: %s", replicas, err, out)
	}
	// After a drain nothing comes back, since the node is unschedulable.
	if out, err := w.home.Kubectl(t.Context(), "drain", homeNode, "--ignore-daemonsets", "--force", "--timeout=100s").CombinedOutput(); err != nil {
		t.Fatalf("kubectl drain: %v: %s", err, out)
	}
	eventually(t, "no remote pod is left", func(ctx context.Context) error {
		list, err := w.remote.client.CoreV1().Pods("").List(ctx, ownedByNode)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	if err := deployments.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.testNothingLeft(t)
}

// All that pods needed in the remote cluster is deleted with them.
func (w *world) testNothingLeft(t *testing.T) {
	eventually(t, "nothing of ours is left", func(ctx context.Context) error {
		secrets, err := w.remote.client.CoreV1().Secrets("").List(ctx, ownedByNode)
		if err != nil {
			return err
		}
		maps, err := w.remote.client.CoreV1().ConfigMaps("").List(ctx, ownedByNode)
		if err != nil {
			return err
		}
		if len(secrets.Items)+len(maps.Items) > 0 {
			return fmt.Errorf("there are %d Secrets, of them %+v, and %d ConfigMaps", len(secrets.Items), secrets.Items[:min(len(secrets.Items), 1)], len(maps.Items))
		}
		return nil
	})
}
