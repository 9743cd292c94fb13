package kubernetes

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

const (
	// sweepInterval is how often to look for what is left in the remote cluster,
	// and forgetInterval for pods that are in neither cluster any more.
	sweepInterval  = 5 * time.Minute
	forgetInterval = 30 * time.Second
	// forgetAge is how long a pod has to be followed before its absence from
	// both clusters counts.
	forgetAge = time.Minute
)

// sweep removes, once the remote pods are known and then at intervals, what is
// left in the remote cluster of pods that are gone.
func (p *Provider) sweep(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	var last time.Time
	for ctx.Err() == nil {
		remote := p.forgetMissing()
		if time.Since(last) >= sweepInterval {
			last = time.Now()
			err := p.reflector.Sweep(ctx, p.metadata, p.namespace, remote)
			if p.claims != nil {
				err = errors.Join(err, p.claims.Sweep(ctx, p.namespace))
			}
			if p.services != nil {
				err = errors.Join(err, p.services.Sweep(ctx, p.namespace))
			}
			if err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Warn("Cannot look for what is left in the remote cluster; it is tried again")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(forgetInterval):
		}
	}
}

// forgetMissing lets go of pods that are in neither cluster: such as could never
// be created. It returns the remote pods.
func (p *Provider) forgetMissing() []*corev1.Pod {
	var remote []*corev1.Pod
	present := map[types.UID]struct{}{}
	for _, obj := range p.informer.GetStore().List() {
		if pod, ok := obj.(*corev1.Pod); ok {
			remote = append(remote, pod)
			present[translate.UIDOf(pod)] = struct{}{}
		}
	}
	for _, pod := range p.reflector.Pods(forgetAge) {
		local, err := p.home.Pods.Pods(pod.Namespace).Get(pod.Name)
		athome := err == nil && local.UID == pod.UID || err != nil && !apierrors.IsNotFound(err)
		if _, ok := present[pod.UID]; !ok && !athome {
			p.reflector.Forget(pod.UID)
		}
	}
	p.forgetMet(present)
	return remote
}
