package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

const (
	// sweepInterval is how often to look for what is left in the remote cluster,
	// and forgetInterval for pods that are in neither cluster any more.
	sweepInterval  = 5 * time.Minute
	forgetInterval = 10 * time.Second
	// forgetAge is how long a pod has to be followed before its absence from
	// both clusters counts.
	forgetAge = 10 * time.Second
)

// sweep removes, once it is known what there is and then at intervals, what is left
// in the remote cluster of pods, claims and Services that are gone, and makes sure that
// what is known of the remote pods is true.
func (p *Provider) sweep(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	sweepers := p.sweepers()
	for ctx.Err() == nil {
		remote := p.forgetMissing()
		for _, s := range sweepers {
			if time.Since(s.last) < sweepInterval || !s.ready() || !s.readOnly && !p.mayBegin() {
				continue
			}
			s.last = time.Now()
			if err := s.sweep(ctx, remote); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Warn("Cannot look for what is left in the remote cluster; it is tried again")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(forgetInterval):
		}
	}
}

// sweeper removes what is left of one kind of objects.
type sweeper struct {
	ready func() bool // what there is at home is known
	sweep func(ctx context.Context, remote []*corev1.Pod) error
	last  time.Time

	readOnly bool // it changes nothing, and may run while another process has the node
}

func (p *Provider) sweepers() []*sweeper {
	always := func() bool { return true }
	all := []*sweeper{{
		ready: always,
		sweep: func(ctx context.Context, remote []*corev1.Pod) error {
			return p.reflector.CollectGarbage(ctx, p.metadata, p.namespace, remote)
		},
	}}
	if p.claims != nil {
		all = append(all, &sweeper{ready: p.claims.HasSynced, sweep: func(ctx context.Context, _ []*corev1.Pod) error { return p.claims.CollectGarbage(ctx, p.namespace) }})
	}
	all = append(all, &sweeper{ready: always, last: time.Now(), sweep: func(ctx context.Context, _ []*corev1.Pod) error { return p.checkOthers(ctx) }})
	all = append(all, &sweeper{ready: always, readOnly: true, last: time.Now(), sweep: func(ctx context.Context, _ []*corev1.Pod) error { return p.checkStale(ctx) }})
	if p.services != nil {
		all = append(all, &sweeper{ready: p.services.HasSynced, sweep: func(ctx context.Context, _ []*corev1.Pod) error { return p.services.CollectGarbage(ctx, p.namespace) }})
	}
	return all
}

// forgetMissing lets go of pods that are in neither cluster: such as could never
// be created. It returns the remote pods.
func (p *Provider) forgetMissing() []*corev1.Pod {
	remote := p.remotePods()
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[translate.UIDOf(pod)] = struct{}{}
		if local := p.local(pod); local != nil { // which may have been known later than the remote pod
			p.reflector.AdoptPod(local)
			p.watchEnd(pod)
		}
	}
	for _, pod := range p.reflector.RegisteredPods(forgetAge) {
		local, err := p.home.Pods.Pods(pod.Namespace).Get(pod.Name)
		athome := err == nil && local.UID == pod.UID || err != nil && !apierror.IsNotFound(err)
		if _, ok := present[pod.UID]; !ok && !athome {
			p.reflector.UnregisterPod(pod.UID)
		}
	}
	p.forgetMet(present)
	p.forgetEnding(remote)
	p.forgetWaiting(remote)
	return remote
}
