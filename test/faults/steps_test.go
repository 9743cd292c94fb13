package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

// do takes a step. What a step asks of a pod that is not there, or of an agent
// that does not run, has no effect, so that each part of a history is one too.
func (w *world) do(step string) {
	logEvent("step: %s", step)
	words := strings.Fields(step)
	switch words[0] {
	case "create":
		w.create(words)
	case "recreate":
		w.delete(words[1], ptr.To[int64](0))
		w.create(words)
	case "update":
		w.update(words[1])
	case "delete":
		w.delete(words[1], grace(words, 2))
	case "force":
		w.delete(words[1], ptr.To[int64](0))
	case "evict":
		w.must(w.admin.CoreV1().Pods(w.ns).EvictV1(w.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: words[1]}}))
	case "unfinalize":
		w.unfinalize(words[1])
	case "condition":
		w.setCondition(words[1], "example.com/foreign", corev1.ConditionTrue)
	case "drift":
		w.setCondition(words[1], corev1.PodReady, corev1.ConditionUnknown)
	case "kill":
		w.stop(true)
	case "stop":
		w.stop(false)
	case "start":
		w.start()
	case "orphan": // goes while no agent runs
		w.stop(true)
		w.delete(words[1], ptr.To[int64](0))
		w.start()
	case "api":
		w.api.Break(plan(words))
	case "provider":
		w.prov.Break(plan(words))
	case "partition":
		w.api.Partition(min(duration(words), w.most), false)
	case "silence":
		w.api.Partition(min(duration(words), w.most), true)
	case "empty":
		w.empties(min(duration(words), w.most))
	case "late": // its deletion is seen when its grace period is over
		w.api.Partition(min(duration(words[1:]), w.most), true)
		w.delete(words[1], nil)
		time.Sleep(min(duration(words[1:]), w.most))
	case "clock": // of the API server, and how much it is behind
		w.behind.Store(int64(duration(words)))
	case "compact":
		w.compact()
	case "node-delete":
		w.must(w.admin.CoreV1().Nodes().Delete(w.ctx, w.node, metav1.DeleteOptions{}))
	case "heal":
		w.heal()
	case "wait":
		time.Sleep(min(duration(words), w.most))
	default:
		panic(fmt.Sprintf("%q is no step", step))
	}
}

func plan(words []string) fault.Plan {
	p, err := fault.ParsePlan(strings.Join(words[1:], " "))
	if err != nil {
		panic(err)
	}
	return p
}

// must records an error of a request that meets no faults; that there is
// no such object, or another one, is none.
func (w *world) must(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		w.breaks("a request of the test failed: %v", err)
	}
}

func (w *world) heal() {
	w.api.Calm()
	w.prov.Calm()
}

func (w *world) create(words []string) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: words[1], Labels: map[string]string{behaviour: words[2]}},
		Spec: corev1.PodSpec{
			NodeName:                      w.node,
			Containers:                    []corev1.Container{{Name: "main", Image: "image-0"}},
			TerminationGracePeriodSeconds: ptr.To[int64](10),
			RestartPolicy:                 corev1.RestartPolicyAlways,
			EnableServiceLinks:            ptr.To(false),
			AutomountServiceAccountToken:  ptr.To(false),
		},
	}
	if slices.Contains(words, "never") || words[2] == ends || words[2] == fails {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if slices.Contains(words, "finalizer") {
		pod.Finalizers = []string{"example.com/finalizer"}
	}
	if slices.Contains(words, "env") {
		pod.Spec.Containers[0].EnvFrom = environment(settings)
	}
	if slices.Contains(words, "optional") {
		from := environment(settings)
		from[0].ConfigMapRef.Optional, from[1].SecretRef.Optional = ptr.To(true), ptr.To(true)
		from[1].Prefix = "SECRET_"
		pod.Spec.Containers[0].EnvFrom = from
		pod.Annotations = map[string]string{reads: "true"}
	}
	if slices.Contains(words, "waits") {
		pod.Spec.Containers[0].EnvFrom = environment("missing")
	}
	_, err := w.admin.CoreV1().Pods(w.ns).Create(w.ctx, pod, metav1.CreateOptions{})
	w.must(err)
}

// settings is the name of a ConfigMap and of a Secret, which are always there.
const settings = "settings"

// reads marks pods that have an optional variable from each of them.
const reads = "reads"

// addSettings creates them.
func (w *world) addSettings() {
	data := map[string]string{"KEY": "value"}
	meta := metav1.ObjectMeta{Name: settings}
	_, err := w.admin.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.CoreV1().Secrets(w.ns).Create(w.ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"KEY": []byte("value")}}, metav1.CreateOptions{})
	w.must(err)
}

// hasSettings reports whether both variables of a pod that reads them are there; a real
// cluster has others, too.
func hasSettings(env []corev1.EnvVar) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(v corev1.EnvVar) bool { return v.Name == name && v.Value == "value" })
	}
	return has("KEY") && has("SECRET_KEY")
}

func environment(name string) []corev1.EnvFromSource {
	of := corev1.LocalObjectReference{Name: name}
	return []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: of}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: of}},
	}
}

// get returns a pod of the API, or nil.
func (w *world) get(name string) *corev1.Pod {
	pod, err := w.admin.CoreV1().Pods(w.ns).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.must(err)
		return nil
	}
	return pod
}

func (w *world) update(name string) {
	pod := w.get(name)
	if pod == nil {
		return
	}
	n := w.updates.Add(1)
	pod.Labels["update"] = fmt.Sprint(n)
	if n%2 == 0 {
		pod.Spec.Containers[0].Image = fmt.Sprintf("image-%d", n)
	}
	_, err := w.admin.CoreV1().Pods(w.ns).Update(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err)
}

func (w *world) delete(name string, grace *int64) {
	w.must(w.admin.CoreV1().Pods(w.ns).Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace}))
}

func (w *world) unfinalize(name string) {
	pod := w.get(name)
	if pod == nil || len(pod.Finalizers) == 0 {
		return
	}
	pod.Finalizers = nil
	_, err := w.admin.CoreV1().Pods(w.ns).Update(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err)
}

// setCondition is somebody else's write to the status of a pod.
func (w *world) setCondition(name string, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	pod := w.get(name)
	if pod == nil {
		return
	}
	conditions := slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	pod.Status.Conditions = append(conditions, corev1.PodCondition{Type: kind, Status: status})
	_, err := w.admin.CoreV1().Pods(w.ns).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err)
	if kind != corev1.PodReady && err == nil {
		w.know(pod) // the watch may be late
		w.mu.Lock()
		w.pods[pod.UID].condition = true
		w.mu.Unlock()
	}
}
