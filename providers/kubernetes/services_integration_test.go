//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Service of a namespace with pods is copied to the remote cluster, with the
// addresses that these have there; a Service that exists there stays as it is.
func (w *world) testServices(t *testing.T) {
	services := w.remote.client.CoreV1().Services("home-default")
	w.remote.applyText(`
apiVersion: v1
kind: Service
metadata: {name: foreign, namespace: home-default}
spec: {ports: [{port: 1}]}
`)
	const manifest = `
apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  selector: {app: %[1]s}
  %s
  ports: [{name: http, port: 80, targetPort: 8080}]
---
`
	w.home.applyText(fmt.Sprintf(manifest, "web", "type: NodePort") + fmt.Sprintf(manifest, "peers", "clusterIP: None") + fmt.Sprintf(manifest, "foreign", ""))
	pod := w.pod(t, "web", func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} })
	w.waitRunning(t, pod)
	far, err := w.remotePod(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}

	slicesOf := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"}
	eventually(t, "the remote Service has the pod's address there", func(ctx context.Context) error {
		s, err := services.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.Selector) > 0 || s.Spec.ClusterIP == "" || s.Spec.Ports[0].TargetPort.IntValue() != 8080 {
			return fmt.Errorf("it is %+v", s.Spec)
		}
		list, err := w.remote.client.DiscoveryV1().EndpointSlices("home-default").List(ctx, slicesOf)
		if err != nil {
			return err
		}
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if e.Addresses[0] == far.Status.PodIP && *e.Conditions.Ready && *slice.Ports[0].Port == 8080 {
					return nil
				}
			}
		}
		return fmt.Errorf("the pod has %s, and there are %+v", far.Status.PodIP, list.Items)
	})
	eventually(t, "the headless Service is there", func(ctx context.Context) error {
		s, err := services.Get(ctx, "peers", metav1.GetOptions{})
		if err == nil && s.Spec.ClusterIP != corev1.ClusterIPNone {
			err = fmt.Errorf("it is %+v", s.Spec)
		}
		return err
	})
	if s, err := services.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil || s.Spec.Ports[0].Port != 1 || len(s.Labels) > 0 {
		t.Errorf("the Service of somebody else was touched: %v %+v", err, s)
	}
	if _, err := services.Get(t.Context(), "kubernetes", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the API server's Service is there: %v", err)
	}

	w.delete(t, pod)
	for _, name := range []string{"web", "peers", "foreign"} {
		if err := w.home.client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the remote Services are gone", func(ctx context.Context) error {
		list, err := services.List(ctx, metav1.ListOptions{})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "foreign") {
			err = fmt.Errorf("there are %+v", list.Items)
		}
		return err
	})
	eventually(t, "and their EndpointSlices", func(ctx context.Context) error {
		list, err := w.remote.client.DiscoveryV1().EndpointSlices("home-default").List(ctx, ownedByNode)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %+v", list.Items)
		}
		return err
	})
}
