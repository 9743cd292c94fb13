package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
)

// managedBy is the value of the label app.kubernetes.io/managed-by of all that
// checks make.
const managedBy = "virtual-kubelet-nodecheck"

// Scope is what one check makes in the cluster. End removes all of it. It is
// safe for concurrent use.
type Scope struct {
	*Node
	name string

	mu      sync.Mutex
	order   []types.UID
	pods    map[types.UID]*corev1.Pod // as last seen
	objects []func(context.Context) error
}

// Begin makes a Scope. The names of its pods start with name.
func (n *Node) Begin(name string) *Scope {
	return &Scope{Node: n, name: name, pods: map[types.UID]*corev1.Pod{}}
}

// End removes what the scope has made. It does so even if ctx has ended.
func (s *Scope) End(ctx context.Context) error {
	ctx, cancel := within(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	s.mu.Lock()
	objects := slices.Clone(s.objects)
	s.mu.Unlock()
	var errs []error
	for _, remove := range slices.Backward(objects) {
		if err := remove(ctx); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (s *Scope) onEnd(remove func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = append(s.objects, remove)
}

// onEndIfMade is onEnd for an object whose creation has failed with err, unless the API server has
// refused it.
func (s *Scope) onEndIfMade(err error, remove func(context.Context) error) {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return
	}
	s.onEnd(remove)
}

func (s *Scope) objectMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		GenerateName: "nodecheck-" + s.name + "-",
		Namespace:    s.Namespace,
		Labels:       map[string]string{"app.kubernetes.io/managed-by": managedBy},
	}
}

// chooseName sets a name, where the API server would: only what has a known name can be removed
// where the answer to its creation is lost.
func chooseName(meta *metav1.ObjectMeta) {
	if meta.Name == "" {
		meta.Name, meta.GenerateName = meta.GenerateName+rand.String(10), ""
	}
}

// Pod is a pod for the node, whose name Create chooses.
func (s *Scope) Pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: s.objectMeta(),
		Spec: corev1.PodSpec{
			NodeName:                      s.Name,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			RestartPolicy:                 s.RestartPolicy,
			TerminationGracePeriodSeconds: ptr.To[int64](10),
			AutomountServiceAccountToken:  ptr.To(false),
			Containers:                    containers,
		},
	}
}

// Job is a pod that is not started again.
func (s *Scope) job(script string, mounts ...corev1.VolumeMount) *corev1.Pod {
	pod := s.Pod(s.container("main", script))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].VolumeMounts = mounts
	return pod
}

// container runs a script. Its last lines are to be found in the status if it
// fails.
func (n *Node) container(name, script string) corev1.Container {
	c := corev1.Container{Name: name, Image: n.Image, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}
	if len(n.Shell) > 0 {
		c.Command = append(slices.Clone(n.Shell), script)
	}
	return c
}

// stay is the script of a container that runs until it is stopped, and then ends
// at once.
const stay = "trap 'exit 0' TERM; sleep 100000 & wait"

// LongRunning is a container that runs until it is stopped.
func (n *Node) LongRunning(name string) corev1.Container { return n.container(name, stay) }

// Create creates a pod.
func (s *Scope) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	pods := s.Client.CoreV1().Pods(s.Namespace)
	pod = pod.DeepCopy()
	chooseName(&pod.ObjectMeta)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		s.onEndIfMade(err, func(ctx context.Context) error {
			return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		})
		return nil, fmt.Errorf("create a pod on node %s: %w", s.Name, err)
	}
	s.seen(created)
	s.onEnd(func(ctx context.Context) error { return s.Delete(ctx, created, 0) })
	return created, nil
}

// CreateRunning creates a pod with a container that runs until it is stopped, and
// waits until it runs.
func (s *Scope) CreateRunning(ctx context.Context) (*corev1.Pod, error) {
	return s.createAnd(ctx, s.Pod(s.LongRunning("main")), "runs", Running)
}

// createAnd creates a pod, and waits until it has met the conditions.
func (s *Scope) createAnd(ctx context.Context, pod *corev1.Pod, what string, conditions ...PodCondition) (*corev1.Pod, error) {
	created, err := s.Create(ctx, pod)
	if err != nil {
		return nil, err
	}
	return s.Follow(ctx, created, what, nil, conditions...)
}

// Delete deletes this very pod, not another of its name.
func (s *Scope) Delete(ctx context.Context, pod *corev1.Pod, graceSeconds int64) error {
	err := s.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &graceSeconds,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// CreateConfigMap creates a ConfigMap of that name, or of one that it chooses.
func (s *Scope) CreateConfigMap(ctx context.Context, name string, data map[string]string) (*corev1.ConfigMap, error) {
	configMaps := s.Client.CoreV1().ConfigMaps(s.Namespace)
	object := &corev1.ConfigMap{ObjectMeta: s.named(name), Data: data}
	remove := func(ctx context.Context) error { return configMaps.Delete(ctx, object.Name, metav1.DeleteOptions{}) }
	created, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		s.onEndIfMade(err, remove)
		return nil, fmt.Errorf("create a ConfigMap: %w", err)
	}
	s.onEnd(remove)
	return created, nil
}

// CreateSecret is CreateConfigMap for a Secret.
func (s *Scope) CreateSecret(ctx context.Context, name string, data map[string]string) (*corev1.Secret, error) {
	secrets := s.Client.CoreV1().Secrets(s.Namespace)
	object := &corev1.Secret{ObjectMeta: s.named(name), StringData: data}
	remove := func(ctx context.Context) error { return secrets.Delete(ctx, object.Name, metav1.DeleteOptions{}) }
	created, err := secrets.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		s.onEndIfMade(err, remove)
		return nil, fmt.Errorf("create a Secret: %w", err)
	}
	s.onEnd(remove)
	return created, nil
}

func (s *Scope) named(name string) metav1.ObjectMeta {
	meta := s.objectMeta()
	if name != "" {
		meta.Name, meta.GenerateName = name, ""
	}
	chooseName(&meta)
	return meta
}

// seen remembers a pod, as it is now.
func (s *Scope) seen(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[pod.UID]; !ok {
		s.order = append(s.order, pod.UID)
	}
	s.pods[pod.UID] = pod
}

// all returns the pods as they were last seen.
func (s *Scope) all() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(s.order))
	for _, uid := range s.order {
		pods = append(pods, s.pods[uid])
	}
	return pods
}

// Describe is what a person needs to know of the scope's pods where they did not
// do as they should, also after ctx has ended. Of many pods it names a few.
func (s *Scope) Describe(ctx context.Context) string {
	const most = 5
	ctx, cancel := within(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var text strings.Builder
	pods := s.all()
	for i, pod := range pods {
		if i == most {
			fmt.Fprintf(&text, "and %d more pods\n", len(pods)-most)
			break
		}
		text.WriteString(s.describe(ctx, pod))
	}
	return text.String()
}
