package kubernetes

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// A provider that has adopted a pod after a restart creates all that the pod needs
// again when the remote namespace is deleted, its environment too.
func TestNamespaceThatGoesAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const config = "evicted: restart\nnamespaces: {create: true}\n"
		remote := newRemote()
		before := newRig(t, config, remote)
		pod := named("one")
		before.create(pod.DeepCopy())
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodRunning
		r := newRig(t, config, remote, pod)

		gone := true // the namespace
		fakeapi.React(&remote.Fake, "create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return gone, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
		})
		fakeapi.React(&remote.Fake, "create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			gone = false
			return false, nil, nil
		})
		secrets, err := remote.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(secrets.Items) < 2 {
			t.Fatalf("%d Secrets: %v", len(secrets.Items), err)
		}
		environment := r.translate.EnvironmentName(pod)
		for _, s := range secrets.Items {
			if err := remote.CoreV1().Secrets("shop").Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		far := r.remotePod(pod)
		if err := remote.CoreV1().Pods("shop").Delete(t.Context(), far.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if next := r.remotePod(pod); next == nil || next.UID == far.UID {
			t.Errorf("the remote pod is not there again")
		}
		if s, err := remote.CoreV1().Secrets("shop").Get(t.Context(), environment, metav1.GetOptions{}); err != nil || string(s.Data["main.COLOR"]) != "blue" {
			t.Errorf("the environment is not there again: %v, %v", s, err)
		}
		after, err := remote.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(after.Items) != len(secrets.Items) {
			t.Errorf("%d Secrets, want %d: %v", len(after.Items), len(secrets.Items), err)
		}
	})
}
