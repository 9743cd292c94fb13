//go:build integration

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestTaintKeepsPodsAway(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	intolerant := podSpec(n)
	intolerant.Tolerations = nil
	createPod(t, ns, "intolerant", intolerant, nil)
	createPod(t, ns, "tolerant", podSpec(n), nil)
	if pod := waitForPhase(t, ns, "tolerant", corev1.PodRunning); pod.Spec.NodeName != n.name {
		t.Errorf("the tolerant pod runs on %q, want %q", pod.Spec.NodeName, n.name)
	}
	eventually(t, "the scheduler says why the intolerant pod waits", func(ctx context.Context) (bool, string) {
		pod, err := client.CoreV1().Pods(ns).Get(ctx, "intolerant", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				return c.Reason == corev1.PodReasonUnschedulable && pod.Spec.NodeName == "", fmt.Sprintf("%+v", c)
			}
		}
		return false, "no PodScheduled condition"
	})
}

// A pod that is bound past the scheduler to a node without room for it, or that the
// node's labels rule out, is rejected as by a kubelet, and its controller makes another.
func TestPodsThatDoNotFitAreRejected(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	bound := func(change func(*corev1.PodSpec)) corev1.PodSpec {
		spec := podSpec(n)
		spec.NodeSelector, spec.NodeName = nil, n.name
		change(&spec)
		return spec
	}
	for name, c := range map[string]struct {
		change  func(*corev1.PodSpec)
		message string
	}{
		"OutOfcpu": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("101")}
		}, "Pod was rejected: Node didn't have enough resource: cpu, requested: 101000, used: 0, capacity: 100000"},
		"NodeAffinity": {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "elsewhere"} },
			"Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
	} {
		createPod(t, ns, strings.ToLower(name), bound(c.change), nil)
		pod := waitForPhase(t, ns, strings.ToLower(name), corev1.PodFailed)
		if pod.Status.Reason != name || pod.Status.Message != c.message {
			t.Errorf("got %s: %s, want %s: %s", pod.Status.Reason, pod.Status.Message, name, c.message)
		}
	}
	createPod(t, ns, "fits", bound(func(*corev1.PodSpec) {}), nil)
	waitForPhase(t, ns, "fits", corev1.PodRunning)
}

func TestDeploymentIsRolledOut(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	labels := map[string]string{"app": "web"}
	deployments := client.AppsV1().Deployments(ns)
	deployment, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](20),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(n)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	complete := func(what string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) (bool, string) {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			s := d.Status
			return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 20 && s.AvailableReplicas == 20 && s.Replicas == 20, fmt.Sprintf("%+v", s)
		})
	}
	complete("20 replicas are available")
	_, err = deployments.Patch(t.Context(), deployment.Name, "application/strategic-merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"test:2"}]}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	complete("20 replicas of the new template are available, and none of the old")
	eventually(t, "the old pods are gone", func(ctx context.Context) (bool, string) {
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, pod := range pods.Items {
			if pod.Spec.Containers[0].Image != "test:2" {
				return false, pod.Name + " has the old image"
			}
		}
		return len(pods.Items) == 20, fmt.Sprintf("%d pods", len(pods.Items))
	})
	for uid, creates := range createsByUID(n.journalOf(t, ns)) {
		if creates != 1 {
			t.Errorf("pod %s was created %d times", uid, creates)
		}
	}
}

func TestJobCompletes(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	spec := podSpec(n)
	spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := client.BatchV1().Jobs(ns)
	_, err := jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "count"},
		Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](4),
			Parallelism: ptr.To[int32](2),
			Template:    corev1.PodTemplateSpec{Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is complete", func(ctx context.Context) (bool, string) {
		job, err := jobs.Get(ctx, "count", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return job.Status.Succeeded == 4, fmt.Sprintf("%+v", job.Status)
			}
		}
		return false, fmt.Sprintf("%+v", job.Status)
	})
}

func TestMissingConfigMapAppears(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	spec := podSpec(n)
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}}
	createPod(t, ns, "waits", spec, nil)
	eventually(t, "an event says what is missing", func(ctx context.Context) (bool, string) {
		events, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=MandatoryConfigMapNotFound"})
		if err != nil {
			return false, err.Error()
		}
		return len(events.Items) == 1 && events.Items[0].Count == 1, fmt.Sprintf("%+v", events.Items)
	})
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitForPhase(t, ns, "waits", corev1.PodRunning)
}
