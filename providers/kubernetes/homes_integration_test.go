//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// TestHomesOfOneRemoteCluster has the remote objects of an older version, which have no UID
// of their home: a later version of that home adopts them, and their pods run on untouched.
// Another home with a copy of the configuration is refused, and says what to do.
func TestHomesOfOneRemoteCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	home, remote := startCluster(t), startCluster(t)
	startMock(t, remote, "remote-1")
	w := &world{t: t, home: home, remote: remote}
	homeClient := newClient(t, home.as(home.account("kubernetes-rbac.yaml")))
	cfg := configOf(t, remoteOf(remote, remote.account("kubernetes-remote-rbac.yaml")), `
namespaces: {mapping: prefix, prefix: home-, create: true}
evicted: restart
`)
	home.applyText(`
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {key: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: one}
`)
	reads := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}},
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		}
	}
	virtual := startVirtual(t, homeClient, cfg)
	pods := []*corev1.Pod{w.pod(t, "one", reads), w.pod(t, "two", reads)}
	for _, pod := range pods {
		w.waitRunning(t, pod)
	}

	t.Run("objects of an older version are adopted", func(t *testing.T) {
		virtual.end()
		before := w.remoteObjects(t)
		w.unlabel(t, before)
		virtual = startVirtual(w.t, homeClient, cfg)
		uid := systemUID(t, home)
		eventually(t, "all objects have the UID of their home", func(context.Context) error {
			for name, object := range w.remoteObjects(t) {
				if got := object.Labels[translate.LabelClusterUID]; got != string(uid) {
					return fmt.Errorf("%s has the UID %q, want %s", name, got, uid)
				}
			}
			return nil
		})
		w.wantUntouched(t, before)
		for _, pod := range pods {
			if now := w.waitRunning(t, pod); now.UID != pod.UID {
				t.Errorf("pod %s was replaced", pod.Name)
			}
		}
		// What was adopted is the node's in full: a change arrives, and a pod can be deleted.
		home.applyText("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {key: two}}")
		eventually(t, "the change arrives", func(ctx context.Context) error {
			list, err := remote.client.CoreV1().ConfigMaps("home-default").List(ctx, ownedByNode)
			if err == nil && !slices.ContainsFunc(list.Items, func(copied corev1.ConfigMap) bool { return copied.Data["key"] == "two" }) {
				err = fmt.Errorf("there are %+v", list.Items)
			}
			return err
		})
		w.delete(t, pods[1])
		w.waitNothingOf(t, pods[1])
	})

	t.Run("a home with a copied configuration is refused", func(t *testing.T) {
		other := startCluster(t)
		before := w.remoteObjects(t)
		second := launchVirtual(t, newClient(t, other.as(other.account("kubernetes-rbac.yaml"))), cfg)
		copied := &world{t: t, home: other, remote: remote}
		// The same name, in the same namespace: the place of the first home's pod.
		copied.pod(t, pods[0].Name, nil)
		eventually(t, "the node of the second home says why it is not ready", func(ctx context.Context) error {
			node, err := other.client.CoreV1().Nodes().Get(ctx, homeNode, metav1.GetOptions{})
			if err != nil {
				return err
			}
			message := readyCondition(node).Message
			for _, text := range []string{string(systemUID(t, home)), string(systemUID(t, other)), `give this cluster a name of its own in "cluster"`, "kubectl delete pods,configmaps,secrets"} {
				if !strings.Contains(message, text) {
					return fmt.Errorf("it says %q, without %s", message, text)
				}
			}
			return nil
		})
		if err := other.client.CoreV1().Pods("default").Delete(t.Context(), pods[0].Name, *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // a round of pings and of the pod controller
		second.end()
		w.wantUntouched(t, before)
		if now := w.waitRunning(t, pods[0]); now.UID != pods[0].UID {
			t.Error("the pod of the first home was replaced")
		}
		w.delete(t, w.pod(t, "three", nil)) // the first home's node goes on
	})
}

// launchVirtual is startVirtual for a node that does not get ready.
func launchVirtual(t *testing.T, client clientset.Interface, cfg kubernetes.Config) *running {
	t.Helper()
	return launchNode(t, client, homeNode, newProvider(cfg))
}

func systemUID(t *testing.T, c *cluster) types.UID {
	t.Helper()
	namespace, err := c.client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.UID
}

func readyCondition(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// remoteObjects returns what the node has in the remote cluster, by kind and name.
func (w *world) remoteObjects(t *testing.T) map[string]metav1.PartialObjectMetadata {
	t.Helper()
	client, err := metadata.NewForConfig(w.remote.Config())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]metav1.PartialObjectMetadata{}
	for _, resource := range []string{"pods", "configmaps", "secrets"} {
		list, err := client.Resource(corev1.SchemeGroupVersion.WithResource(resource)).List(t.Context(), ownedByNode)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			found[resource+" "+object.Namespace+"/"+object.Name] = object
		}
	}
	return found
}

// unlabel makes objects look like those of an older version.
func (w *world) unlabel(t *testing.T, objects map[string]metav1.PartialObjectMetadata) {
	t.Helper()
	client, err := metadata.NewForConfig(w.remote.Config())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for name, object := range objects {
		resource, _, _ := strings.Cut(name, " ")
		kinds[resource]++
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: null}}}`, translate.LabelClusterUID)
		if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(object.Namespace).
			Patch(t.Context(), object.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if kinds["pods"] != 2 || kinds["configmaps"] < 1 || kinds["secrets"] < 1 {
		t.Fatalf("the older version has left %v", kinds)
	}
}

// wantUntouched fails the test if one of the objects was deleted or replaced, or others
// were added.
func (w *world) wantUntouched(t *testing.T, before map[string]metav1.PartialObjectMetadata) {
	t.Helper()
	now := w.remoteObjects(t)
	if had, has := slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(now)); !slices.Equal(had, has) {
		t.Errorf("the remote cluster has %q, had %q", has, had)
	}
	for name, object := range before {
		if is := now[name]; is.UID != object.UID || is.DeletionTimestamp != nil {
			t.Errorf("%s was deleted or replaced", name)
		}
	}
}
