package grouptest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func life(r *run) {
	pod := r.pod("life")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if status := r.status(pod); status != nil {
		r.Errorf("before its creation the status of the pod is %v", status)
	}
	r.create(pod)
	if status := r.status(pod); status == nil || status.Phase != corev1.PodPending {
		r.Errorf("right after its creation the status of the pod is %v, and not Pending", status)
	}
	r.until("that the pod runs", r.isRunning(pod))
	status := r.status(pod)
	if status.PodIP == "" || len(status.ContainerStatuses) != 1 || !status.ContainerStatuses[0].Ready || status.ContainerStatuses[0].ContainerID == "" {
		r.Errorf("the status of the running pod is %+v", status)
	}
	r.must(r.world.Exit(pod.Name, "main", 3))
	r.until("that the pod has failed", func() bool { s := r.status(pod); return s != nil && s.Phase == corev1.PodFailed })
	if end := r.status(pod).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		r.Errorf("the container ended with 3, and its state is %v", r.status(pod).ContainerStatuses[0].State)
	}
	r.must(r.p.DeletePod(r.Context(), pod))
	r.until("that the pod is gone", func() bool { return r.status(pod) == nil })
	if err := r.p.DeletePod(r.Context(), pod); !errdefs.IsNotFound(err) {
		r.Errorf("the deletion of a pod that is gone returns %v, no error of class NotFound", err)
	}
}

func lostCreation(r *run) {
	pod := r.pod("lost")
	r.cluster.SetPod(pod)
	r.world.Lose(r.action(podgroup.ActionCreate), 1)
	if err := r.p.CreatePod(r.Context(), pod); err == nil || errdefs.IsPermanent(err) {
		r.Fatalf("CreatePod whose answer is lost returns %v, which is not tried again", err)
	}
	for range 2 {
		if r.status(pod) == nil { // as the controller asks
			r.must(r.p.CreatePod(r.Context(), pod))
		}
	}
	r.until("that the pod runs", r.isRunning(pod))
	if units := r.units(pod); len(units) != 1 {
		r.Errorf("the pod has %d units: %v", len(units), units)
	}
}

func secondUnit(r *run) {
	pod := r.pod("twice")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	first := r.units(pod)[0].ID
	time.Sleep(time.Second)
	_, err := r.world.Duplicate(pod.Name)
	r.must(err)
	r.start() // a watch does not see what it missed
	r.until("that the second unit is deleted", func() bool {
		r.pods()
		return len(r.units(pod)) == 1
	})
	if units := r.units(pod); units[0].ID != first {
		r.Errorf("unit %s is left, and not the first one, %s", units[0].ID, first)
	}
}

func restart(r *run) {
	pod := r.pod("again")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	before := r.status(pod)
	r.start()
	if pods := r.pods(); len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Namespace != pod.Namespace || pods[0].Name != pod.Name {
		r.Errorf("after the restart the pods are %v", pods)
	}
	after := r.status(pod)
	if after == nil || after.Phase != corev1.PodRunning || after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID ||
		after.ContainerStatuses[0].RestartCount != 0 {
		r.Errorf("the status was %+v and is %+v", before, after)
	}
	if n := len(r.units(pod)); n != 1 {
		r.Errorf("the pod has %d units", n)
	}
}

func endsWhileAway(r *run) {
	pod := r.pod("job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	Close(r.T, r.p)
	r.must(r.world.Exit(pod.Name, "main", 0))
	r.p = nil
	r.start()
	r.until("that the pod has succeeded", func() bool { s := r.status(pod); return s != nil && s.Phase == corev1.PodSucceeded })
	if n := len(r.world.Units(nil)); n != 1 {
		r.Errorf("there are %d units", n)
	}
}

func orphan(r *run) {
	pod := r.pod("orphan")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	r.cluster.RemovePod(pod)
	r.start()
	pods := r.pods()
	if len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Name != pod.Name || pods[0].Namespace != pod.Namespace {
		r.Fatalf("a unit whose pod is gone is shown as %v", pods)
	}
	r.must(r.p.DeletePod(r.Context(), pods[0]))
	r.until("that nothing is left", func() bool { return len(r.pods()) == 0 })
}

func foreign(r *run) {
	other := r.pod("other")
	r.create(other)
	r.until("that the pod runs", r.isRunning(other))
	r.cluster = NewCluster("another")
	r.start()
	if pods, err := r.p.GetPods(r.Context()); err == nil || !errdefs.IsUnavailable(err) {
		r.Errorf("a node whose names another cluster uses has pods %v, error %v", pods, err)
	}
	ours := r.pod("ours")
	r.cluster.SetPod(ours)
	if err := r.p.CreatePod(r.Context(), ours); err == nil {
		r.Error("a node whose names another cluster uses creates pods")
	}
	if err := r.n.Ping(r.Context()); err == nil {
		r.Error("a node whose names another cluster uses is ready")
	}
	if len(r.units(other)) != 1 {
		r.Error("the unit of the other cluster is gone")
	}
}

// anotherPlace starts the node again where it has no units, such as in another account, and
// then where it had them.
func anotherPlace(r *run) {
	backend, options := r.suite.New(r.T, r.world)
	if options.Place == "" {
		return
	}
	pod := r.pod("there")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	r.until("that the pod is annotated with the place of its unit", func() bool {
		r.pods()
		return r.cluster.Pod(pod.Namespace, pod.Name).Annotations[podgroup.AnnotationPlace] == options.Place
	})
	known := r.cluster.Pod(pod.Namespace, pod.Name).DeepCopy()
	known.Status = *r.status(pod)
	r.cluster.SetPod(known)
	Close(r.T, r.p)
	r.world.Hide(true)
	place := options.Place
	options.Place = "another place"
	r.p, r.n = r.cluster.Start(r.T, backend, options)
	CheckUnfound(r.T, r.p, fmt.Sprintf("was created in %q", place))
	if err := r.n.Ping(r.Context()); err == nil {
		r.Error("a node whose configuration leads to another place is ready")
	}
	r.cluster.RemovePod(known)
	if pods := r.pods(); len(pods) != 0 {
		r.Errorf("the pod was deleted with force, and the pods are %v", pods)
	}
	r.cluster.SetPod(known)
	r.world.Hide(false)
	r.start()
	if pods := r.pods(); len(pods) != 1 {
		r.Errorf("the configuration is corrected, and the pods are %v", pods)
	}
}

// CheckUnfound checks a provider that finds none of its units because its configuration was
// changed: lists fail with class Unavailable and a text, so that no pod counts as gone. It takes
// a minute and a half, of the bubble's time in a testing/synctest.
func CheckUnfound(t *testing.T, p nodeutil.Provider, text string) {
	t.Helper()
	for range 3 {
		time.Sleep(30 * time.Second)
		if all, err := p.GetPods(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), text) {
			t.Fatalf("the list has %d pods and the error %v, not %q", len(all), err, text)
		}
	}
}

// CheckLeaves checks that a pod, whose creation has failed with podgroup.NotCreated, leaves the API as soon
// as it is deleted.
func CheckLeaves(t *testing.T, c *Cluster, p nodeutil.Provider, pod *corev1.Pod) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	c.SetPod(pod)
	if _, err := p.(node.PodUIDLifecycleHandler).GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
		t.Errorf("pod %s was not created, and once it is deleted the error is %v", pod.Name, err)
	}
}

func unsupported(r *run) {
	pod := r.pod("unsupported")
	host, propagation := true, corev1.MountPropagationBidirectional
	pod.Spec.ShareProcessNamespace, pod.Spec.HostPID = nil, host
	pod.Spec.Volumes = []corev1.Volume{{Name: "exotic", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.7", IQN: "iqn.example"}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "exotic", MountPath: "/exotic", MountPropagation: &propagation}}
	r.cluster.SetPod(pod)
	err := r.p.CreatePod(r.Context(), pod)
	if !errdefs.IsPermanent(err) {
		r.Fatalf("a pod with features that no service has returns %v, no permanent error", err)
	}
	for _, field := range []string{"hostPID", "volumes[exotic].iscsi", "containers[main].volumeMounts[exotic].mountPropagation"} {
		if !strings.Contains(err.Error(), field) {
			r.Errorf("the error does not name %s: %v", field, err)
		}
	}
	if n := r.world.Calls(r.action(podgroup.ActionCreate)); n != 0 {
		r.Errorf("%d creations were sent", n)
	}
}
