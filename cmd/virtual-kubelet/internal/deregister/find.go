package deregister

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// search finds what there is of the nodes.
type search struct {
	Config
	plan *Plan
	all  *certificatesv1.CertificateSigningRequestList // set by requests
}

// Find looks what there is of the nodes, and changes nothing. The error says which Nodes are
// not this program's, or what could not be read: then nothing is to be removed.
func Find(ctx context.Context, cfg Config) (*Plan, error) {
	s := &search{Config: cfg, plan: &Plan{}}
	var errs []error
	for _, n := range cfg.Nodes {
		errs = append(errs, s.node(ctx, n))
	}
	errs = append(errs, s.elections(ctx))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.plan, nil
}

// node finds what there is of a node. The Node itself comes last: it is by the Node that the
// rest is known as this program's.
func (s *search) node(ctx context.Context, n doctor.Node) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object, err := s.object(ctx, n)
	if err != nil {
		return err
	}
	lease, err := s.lease(ctx, n.Name)
	if err != nil {
		return err
	}
	if lease != nil && !isOf(lease, n.Name, object) {
		s.mention("Lease %s/%s is left alone: nothing shows that it is a virtual kubelet's", lease.Namespace, lease.Name)
		lease = nil
	}
	if object == nil && lease == nil {
		s.mention("there is nothing of node %s", n.Name)
		return nil
	}
	s.checkLife(n.Name, object, lease)
	if lease != nil {
		s.add(kindLease, lease)
	}
	if err := s.requests(ctx, n.Name); err != nil {
		return err
	}
	if object == nil {
		return nil
	}
	s.add(kindNode, object)
	return s.pods(ctx, n.Name)
}

// object returns the Node of a node; nil if there is none. One of somebody else is an error.
func (cfg Config) object(ctx context.Context, n doctor.Node) (*corev1.Node, error) {
	object, err := cfg.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read Node %s: %w", n.Name, err)
	case !nodemarks.WroteLabel(object, node.LabelProvider) && object.Labels["type"] != "virtual-kubelet": // anybody may set labels, the latter is of an older library
		return nil, fmt.Errorf("no virtual kubelet made Node %s: it is left alone", n.Name)
	}
	if provider := object.Labels[node.LabelProvider]; n.Provider != "" && provider != "" && provider != n.Provider {
		return nil, fmt.Errorf("the Node %s belongs to provider %s, not to %s: it is left alone; leave out --provider, or name that one", n.Name, doctor.Plain(provider), n.Provider)
	}
	return object, nil
}

// lease returns the lease of a node; nil if there is none.
func (cfg Config) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	lease, err := cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the lease of node %s: %w", name, err)
	}
	return lease, nil
}

// isOf reports whether a node's lease is one of this program: that of its Node, or one that
// names a process.
func isOf(lease *coordinationv1.Lease, node string, object *corev1.Node) bool {
	return ptr.Deref(lease.Spec.HolderIdentity, node) == node && (object != nil || nodemarks.Holder(lease) != "")
}

// checkLife finds out whether a process may act for the node.
func (s *search) checkLife(name string, object *corev1.Node, lease *coordinationv1.Lease) {
	if lease == nil {
		if !nodemarks.Stopped(object) {
			s.danger("node %s has no lease, and its Ready condition does not say that its process has ended: stop it, and wait until the control plane has seen it (kubectl get node %s)", name, name)
		}
		return
	}
	if age, lasts := nodemarks.Age(lease, s.Skew, node.DefaultLeaseDuration*time.Second); lasts {
		why := "a process renews it: stop that, and wait until the lease has run out"
		if nodemarks.Holder(lease) == "" {
			why = "no process has it any more: wait until it has run out"
		}
		s.danger("the lease of node %s was renewed %v ago, and %s", name, age, why)
	}
	if group := nodemarks.HolderGroup(lease); group != "" && s.Elections == (doctor.Elections{}) {
		s.mention("processes of node %s agree by leases of %q, which are left: give --leader-elect or --shards, as they have it, to remove them", name, group)
	}
}

// pods finds out whether pods are bound to the node. The control plane deletes those of a
// Node that is gone, without a word to who runs them.
func (s *search) pods(ctx context.Context, name string) error {
	list, err := s.Client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return fmt.Errorf("cannot read the pods of node %s: %w", name, err)
	}
	bound, example := 0, ""
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName == name && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			bound, example = bound+1, pod.Namespace+"/"+pod.Name
		}
	}
	if bound > 0 {
		s.danger("%d pods are bound to node %s, %s among them: their workloads would go on in the provider, where nobody ends them; let virtual-kubelet run while you delete them (kubectl drain %s), and stop it then",
			bound, name, example, name)
	}
	return nil
}

// requests finds the node's requests for certificates: of the node itself, of who
// bootstraps it, and of its account.
func (s *search) requests(ctx context.Context, name string) error {
	const nodeUser, bootstrapUser = "system:node:", "system:bootstrap:"
	account := "system:serviceaccount:" + strings.Replace(s.ServiceAccount, "/", ":", 1)
	if s.all == nil {
		list, err := s.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("cannot read certificate signing requests: %w", err)
		}
		s.all = list
	}
	for i := range s.all.Items {
		request := &s.all.Items[i]
		if signer := request.Spec.SignerName; signer != certificatesv1.KubeletServingSignerName && signer != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		parsed := doctor.ParseRequest(request)
		if parsed == nil || parsed.Subject.CommonName != nodeUser+name {
			continue
		}
		user := request.Spec.Username
		if user == nodeUser+name || strings.HasPrefix(user, bootstrapUser) || s.ServiceAccount != "" && user == account {
			s.add(kindRequest, request)
		} else {
			s.mention("CertificateSigningRequest %s for node %s is left alone: %s made it", doctor.Plain(request.Name), name, doctor.Plain(user))
		}
	}
	return nil
}

// elections finds the leases of --leader-elect or --shards.
func (s *search) elections(ctx context.Context) error {
	if s.Elections == (doctor.Elections{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := s.Client.CoordinationV1().Leases(s.Elections.Namespace)
	var found []coordinationv1.Lease
	if s.Elections.Shards > 0 {
		list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: shard.Label + "=" + s.Elections.Name})
		if err != nil {
			return fmt.Errorf("cannot read the leases of the shards: %w", err)
		}
		for _, lease := range list.Items {
			if strings.HasPrefix(lease.Name, s.Elections.Name+"-shard-") || strings.HasPrefix(lease.Name, s.Elections.Name+"-member-") {
				found = append(found, lease)
			}
		}
	} else {
		lease, err := leases.Get(ctx, s.Elections.Leader, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("cannot read the leader's lease: %w", err)
		default:
			found = append(found, *lease)
		}
	}
	for i := range found {
		lease := &found[i]
		age, lasts := nodemarks.Age(lease, s.Skew, shard.DefaultLeaseDuration)
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && lasts {
			s.danger("%s renewed the lease %s/%s %v ago: stop that process", doctor.Plain(holder), lease.Namespace, lease.Name, age)
		}
		s.add(kindLease, lease)
	}
	return nil
}

func (s *search) add(kind string, object metav1.Object) {
	s.plan.Objects = append(s.plan.Objects, Object{kind, object.GetNamespace(), object.GetName(), object.GetUID(), object.GetResourceVersion()})
}

func (s *search) danger(format string, args ...any) {
	s.plan.Dangers = append(s.plan.Dangers, fmt.Sprintf(format, args...))
}

func (s *search) mention(format string, args ...any) {
	s.plan.Notes = append(s.plan.Notes, fmt.Sprintf(format, args...))
}
