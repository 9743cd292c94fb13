package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// meet notes that the provider has had a pod: whatever comes of its remote pod
// from then on is seen.
func (p *Provider) meet(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met[uid] = struct{}{}
}

// forgetMet forgets the pods that are in neither cluster any more.
func (p *Provider) forgetMet(remote map[types.UID]struct{}) {
	local, err := p.home.Pods.List(labels.Everything())
	if err != nil {
		return
	}
	kept := maps.Clone(remote)
	for _, pod := range local {
		kept[pod.UID] = struct{}{}
	}
	p.forgetReplacements(kept)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.met, func(uid types.UID, _ struct{}) bool { _, ok := kept[uid]; return !ok })
}

// lost is asked about a pod that has no remote one, as the error says. Where it ran
// before the provider began, and so was taken away while none was there to see,
// and the configuration wants that made good, the remote pod is made anew. Until
// then what is returned stands for it: see isLost.
func (p *Provider) lost(namespace, name string, uid types.UID, notFound error) (*corev1.Pod, error) {
	local, err := p.home.Pods.Pods(namespace).Get(name)
	if p.cfg.Evicted != Restart || err != nil || uid == "" || local.UID != uid || local.DeletionTimestamp != nil ||
		local.Status.Phase != corev1.PodRunning || !translate.MayRestart(local) {
		return nil, notFound
	}
	if !p.heard.HasSynced() { // also one in another namespace, of a former configuration, is met
		return nil, errdefs.AsUnavailable(errors.New("the remote pods are not known yet"))
	}
	p.mu.Lock()
	_, met := p.met[uid]
	p.mu.Unlock()
	if met {
		return nil, notFound
	}
	stand := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      p.translate.Home.LabelsOf(namespace, uid),
			Annotations: map[string]string{translate.AnnotationName: name},
		},
		Status: *local.Status.DeepCopy(),
	}
	p.expect(stand)
	return stand, nil
}

// isLost tells whether a remote pod only stands for one that is lost: it has the
// status of the pod at home.
func isLost(remote *corev1.Pod) bool { return remote.UID == "" }

// anew returns the remote pod for one that is lost: all of its containers have been
// restarted once more.
func (p *Provider) anew(ctx context.Context, local *corev1.Pod) (*corev1.Pod, error) {
	pod, err := p.resolved(ctx, local)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the environment of the pod: %v", err)
	}
	next, err := p.remotePod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if err := p.ensureNamespace(ctx, next.Namespace); err != nil {
		return nil, err
	}
	if err := p.reflector.RegisterPod(ctx, pod); err != nil {
		return nil, fmt.Errorf("cannot reflect what the pod needs into the remote cluster: %v", err)
	}
	translate.AddRestarts(next, &local.Status)
	return next, nil
}

// resolved returns a pod at home with its environment resolved, as the node gives one
// that is to be created.
func (p *Provider) resolved(ctx context.Context, local *corev1.Pod) (*corev1.Pod, error) {
	pod := local.DeepCopy()
	options := podenv.Options{HostIPs: p.home.HostIPs(), NodeAllocatable: p.home.NodeAllocatable()}
	_, err := podenv.Resolve(pod, environment{ctx, p}, options)
	return pod, err
}

// environmentOf returns what is in the Secret with the environment of a pod.
func (p *Provider) environmentOf(ctx context.Context, local *corev1.Pod) (map[string][]byte, error) {
	pod, err := p.resolved(ctx, local)
	if err != nil {
		return nil, err
	}
	return p.translate.Environment(pod), nil
}

// environment is where the values of variables are.
type environment struct {
	ctx context.Context
	*Provider
}

var _ podenv.Source = environment{}

// ConfigMap implements podenv.Source.
func (e environment) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return e.home.Objects.ConfigMap(e.ctx, namespace, name)
}

// Secret implements podenv.Source.
func (e environment) Secret(namespace, name string) (*corev1.Secret, error) {
	return e.home.Objects.Secret(e.ctx, namespace, name)
}

// Services implements podenv.Source.
func (e environment) Services(namespace string) ([]*corev1.Service, error) {
	return e.home.Services.Services(namespace).List(labels.Everything())
}
