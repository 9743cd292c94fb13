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

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// A claim of a mapped class gets a remote claim when the scheduler places its
// pod; that outlives the pod, and goes with the claim at home.
func (w *world) testClaim(t *testing.T) {
	w.home.applyText(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: remote}
provisioner: kubernetes.virtual-kubelet.io
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
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
`)
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

// waitNoClaim waits until a remote claim is gone, and what stood for it at home.
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
