package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/clusteruid"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const (
	// identifyTimeout is the timeout of an attempt, identifyDelay the delay after one
	// that failed.
	identifyTimeout = time.Minute
	identifyDelay   = 2 * time.Second
)

// identity reports whether the provider may act: it knows the UID of the home cluster,
// the remote cluster is the one that has its pods, and that has no objects of another home
// with the same names.
type identity struct {
	home  *clusteruid.Reader
	known chan struct{} // closed once the provider may act
	turn  chan struct{} // holds one token during an attempt

	failed error // of the last attempt; guarded by turn, as is next
	next   time.Time
}

func newIdentity(home corev1client.NamespacesGetter) identity {
	return identity{home: clusteruid.New(home), known: make(chan struct{}), turn: make(chan struct{}, 1)}
}

func (i *identity) isKnown() bool {
	select {
	case <-i.known:
		return true
	default:
		return false
	}
}

// ensureIdentified returns nil once the provider may act, unless another cluster takes the
// place of the remote one later. Until then each call makes an attempt, one at a time; within identifyDelay of an attempt that failed it returns
// that error. Errors are of class Unavailable: nothing is known about any pod.
func (p *Provider) ensureIdentified(ctx context.Context) error {
	i := &p.identity
	if i.isKnown() {
		return p.cluster.check()
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		err := fmt.Errorf("cannot determine which remote pods belong to this cluster: %w", context.Cause(ctx))
		if _, unknown := i.home.UID(ctx); unknown == nil { // it is the remote cluster that does not respond
			err = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		return errdefs.AsUnavailable(err)
	}
	switch {
	case i.isKnown():
		return p.cluster.check()
	case time.Now().Before(i.next):
		return i.failed
	}
	timed, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	if err := p.identify(timed); err != nil {
		unreachable := errors.Is(err, errUnreachable)
		// Hide the class of the error: NotFound would be about a pod.
		err = fmt.Errorf("cannot determine which remote pods belong to this cluster: %v", err)
		if unreachable {
			err = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		err = errdefs.AsUnavailable(err)
		if ctx.Err() == nil { // otherwise the error is not about the clusters
			i.failed, i.next = err, time.Now().Add(identifyDelay)
		}
		return err
	}
	close(i.known)
	return nil
}

// waitForIdentity makes attempts until one succeeds. It returns false if ctx ends.
func (p *Provider) waitForIdentity(ctx context.Context) bool {
	logged := ""
	for {
		err := p.ensureIdentified(ctx)
		if err == nil {
			return true
		}
		if text := err.Error(); ctx.Err() == nil && text != logged {
			log.G(ctx).WithError(err).Warn("Not starting work in the remote cluster yet; retrying")
			logged = text
		}
		if periodic.Sleep(ctx, identifyDelay) != nil {
			return false
		}
	}
}

// identify makes one attempt. It writes the UID before it reads any remote object;
// nobody else reads it before identity.known is closed.
func (p *Provider) identify(ctx context.Context) error {
	uid, err := p.identity.home.UID(ctx)
	if err != nil {
		return err
	}
	p.translate.Home.UID = uid
	if err := p.checkRemoteCluster(ctx); err != nil {
		return err
	}
	if err := p.prepareService(ctx); err != nil {
		return err
	}
	mismatch, err := p.findOthers(ctx)
	if mismatch == nil || err != nil {
		return err
	}
	established, err := p.isEstablished(ctx)
	if err == nil && !established {
		return mismatch
	}
	return err
}

// findOthers looks for remote objects with the names of this cluster and node, but
// without its UID. Those of earlier versions are adopted; mismatch is about one that
// belongs to another home.
func (p *Provider) findOthers(ctx context.Context) (mismatch, _ error) {
	var unlabelled []unlabelledObject
	for _, kind := range p.remoteKinds() {
		options := metav1.ListOptions{LabelSelector: p.translate.Home.OthersSelector(), Limit: pageSize}
		for {
			list, err := p.metadata.Resource(kind.resource).Namespace(p.namespace).List(ctx, options)
			if err != nil {
				return nil, remoteError("list the "+kind.resource.Resource, err)
			}
			for i := range list.Items {
				found := &list.Items[i]
				switch {
				case found.Labels[translate.LabelClusterUID] == "":
					unlabelled = append(unlabelled, unlabelledObject{kind, &found.ObjectMeta})
				case mismatch == nil:
					mismatch = mismatchError(p.translate.Home, kind.name, found)
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	if len(unlabelled) == 0 {
		return mismatch, nil
	}
	return mismatch, p.adoptUnlabelled(ctx, unlabelled)
}

// remoteKind is a kind of objects that the provider creates in the remote cluster.
type remoteKind struct {
	name     string
	resource schema.GroupVersionResource
}

var (
	podKind   = remoteKind{"Pod", corev1.SchemeGroupVersion.WithResource("pods")}
	claimKind = remoteKind{"PersistentVolumeClaim", corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")}
)

// remoteKinds returns the kinds that the configuration uses: there may be no right to
// list others.
func (p *Provider) remoteKinds() []remoteKind {
	kinds := []remoteKind{
		podKind,
		{translate.KindConfigMap, corev1.SchemeGroupVersion.WithResource("configmaps")},
		{translate.KindSecret, corev1.SchemeGroupVersion.WithResource("secrets")},
	}
	if p.claims != nil {
		kinds = append(kinds, claimKind)
	}
	if p.services != nil {
		kinds = append(kinds,
			remoteKind{"Service", corev1.SchemeGroupVersion.WithResource("services")},
			remoteKind{"EndpointSlice", discoveryv1.SchemeGroupVersion.WithResource("endpointslices")})
	}
	return kinds
}

// isEstablished reports whether the remote cluster has pods of this home. Then it was
// first, or both started at the same time; to stop it would harm its pods and help
// nobody.
func (p *Provider) isEstablished(ctx context.Context) (bool, error) {
	list, err := p.metadata.Resource(podKind.resource).Namespace(p.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: p.translate.Home.Selector(), Limit: 1})
	if err != nil {
		return false, remoteError("list the pods", err)
	}
	return len(list.Items) > 0, nil
}

// checkOthers repeats the check of identify while the node runs: an earlier version may
// have run beside it for a while. About another home it only logs a warning.
func (p *Provider) checkOthers(ctx context.Context) error {
	mismatch, err := p.findOthers(ctx)
	if mismatch != nil {
		log.G(ctx).WithError(mismatch).Warn("Another cluster uses the remote cluster with the same names; not touching its objects")
	}
	return err
}

func mismatchError(home translate.Home, kind string, found metav1.Object) error {
	other := found.GetLabels()[translate.LabelClusterUID]
	return fmt.Errorf("%s %s/%s belongs to another home cluster with the same names (cluster %q, node %q), whose kube-system has the UID %s, and this one's %s: "+
		"give this cluster a name of its own in \"cluster\" of the provider's configuration; or, if the other one no longer exists, delete what it left: "+
		"kubectl delete pods,configmaps,secrets --all-namespaces -l %s=%s,%s=%s",
		kind, found.GetNamespace(), found.GetName(), home.Cluster, home.Node, other, home.UID,
		translate.LabelCluster, home.Cluster, translate.LabelClusterUID, other)
}
