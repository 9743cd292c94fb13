//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// A claim of a mapped class gets a remote claim when the scheduler places its pod. The
// remote claim outlives the pod, and is deleted with the home claim.
func (w *world) testClaim(t *testing.T) {
	w.home.applyText(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: remote}
provisioner: kubernetes.virtual-kubelet.io
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {storageClassName: remote, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	w.remote.applyText(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  storageClassName: fast
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /nowhere}
` + fast("false"))
	reads := func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Spec.NodeSelector = "", map[string]string{corev1.LabelHostname: homeNode}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "kept"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	claimOf := func(pod *corev1.Pod) *corev1.PersistentVolumeClaim {
		t.Helper()
		w.waitRunning(t, pod)
		far, err := w.remotePod(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		claim, err := w.remote.client.CoreV1().PersistentVolumeClaims(far.Namespace).Get(t.Context(), far.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	first := w.pod(t, "writes", reads)
	claim := claimOf(first)
	if claim.Spec.VolumeName != "disk" || claim.Labels[translate.LabelNode] != homeNode {
		t.Errorf("the remote claim is %+v", claim)
	}
	w.testGrow(t, claim)
	w.delete(t, first)
	second := w.pod(t, "reads", reads)
	if again := claimOf(second); again.UID != claim.UID || again.DeletionTimestamp != nil {
		t.Errorf("the next pod has another claim, %s", again.Name)
	}
	w.delete(t, second)

	here := w.home.client.CoreV1().PersistentVolumeClaims("default")
	local, err := here.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := here.Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitNoClaim(t, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, local.Spec.VolumeName)
}

// fast is the remote storage class, with or without expansion.
func fast(allows string) string {
	return `
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: kubernetes.io/no-provisioner
allowVolumeExpansion: ` + allows + "\n"
}

// testGrow requests a larger size of the claim "kept". An event says that the remote
// class does not allow that; once it does, the remote claim is resized, and the home
// claim and volume show it.
func (w *world) testGrow(t *testing.T, far *corev1.PersistentVolumeClaim) {
	t.Helper()
	w.kubectl(t, "patch", "pvc", "kept", "--patch", `{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}`)
	local, err := w.home.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.waitEvent(t, local, "VolumeResizeFailed")
	w.remote.applyText(fast("true"))
	remotes := w.remote.client.CoreV1().PersistentVolumeClaims(far.Namespace)
	eventually(t, "the remote claim asks for more", func(ctx context.Context) error {
		now, err := remotes.Get(ctx, far.Name, metav1.GetOptions{})
		if err == nil && now.Spec.Resources.Requests.Storage().String() != "2Gi" {
			err = fmt.Errorf("it is %+v", now.Spec)
		}
		return err
	})
	// What the driver of the class does.
	capacity := func(field string) []byte { return fmt.Appendf(nil, `{%q: {"capacity": {"storage": "2Gi"}}}`, field) }
	if _, err := w.remote.client.CoreV1().PersistentVolumes().Patch(t.Context(), "disk", types.MergePatchType, capacity("spec"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := remotes.Patch(t.Context(), far.Name, types.MergePatchType, capacity("status"), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is at home has grown", func(ctx context.Context) error {
		now, err := w.home.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, "kept", metav1.GetOptions{})
		if err != nil {
			return err
		}
		volume, err := w.home.client.CoreV1().PersistentVolumes().Get(ctx, now.Spec.VolumeName, metav1.GetOptions{})
		if err == nil && now.Status.Capacity.Storage().String()+volume.Spec.Capacity.Storage().String() != "2Gi2Gi" {
			err = fmt.Errorf("they are %+v and %+v", now.Status, volume.Spec.Capacity)
		}
		return err
	})
	w.waitEvent(t, local, "VolumeResizeSuccessful")
}

// A claim with volumeBindingMode Immediate gets an event that says that the node of its
// volume is unknown.
func (w *world) testImmediateClaim(t *testing.T) {
	w.home.applyText(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: hasty}
provisioner: kubernetes.virtual-kubelet.io
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: hasty}
spec: {storageClassName: hasty, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	claims := w.home.client.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Get(t.Context(), "hasty", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.waitEvent(t, claim, "WaitForFirstConsumer")
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// If the class names the node, the claim gets its volume at once.
	w.home.applyText(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: remote-at-once}
provisioner: kubernetes.virtual-kubelet.io
reclaimPolicy: Delete
allowedTopologies: [{matchLabelExpressions: [{key: kubernetes.io/hostname, values: [` + homeNode + `]}]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: at-once}
spec: {storageClassName: remote-at-once, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	eventually(t, "the claim is bound", func(ctx context.Context) error {
		claim, err = claims.Get(ctx, "at-once", metav1.GetOptions{})
		if err == nil && claim.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %+v", claim)
		}
		return err
	})
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the remote claim is gone", func(ctx context.Context) error {
		left, err := w.remote.client.CoreV1().PersistentVolumeClaims("home-default").List(ctx, metav1.ListOptions{LabelSelector: translate.LabelUID + "=" + string(claim.UID)})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("it is %+v", left.Items)
		}
		return err
	})
}

// waitNoClaim waits until a remote claim is deleted, and its home volume.
func (w *world) waitNoClaim(t *testing.T, at types.NamespacedName, volume string) {
	t.Helper()
	eventually(t, "the claim is gone on both sides", func(ctx context.Context) error {
		if v, err := w.home.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("at home: %v, %+v", err, v)
		}
		if c, err := w.remote.client.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("in the remote cluster: %v, %+v", err, c)
		}
		return nil
	})
}
