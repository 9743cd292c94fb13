package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// AnnotationRemoteUID is the annotation of a node with the UID of the namespace
// kube-system of the remote cluster that has its pods.
const AnnotationRemoteUID = "kubernetes.virtual-kubelet.io/remote-uid"

// remoteCluster remembers which cluster the remote one is. In another one all pods seem
// to be gone, and with evicted: restart they would run a second time. It is safe for
// concurrent use.
type remoteCluster struct {
	mu       sync.Mutex
	uid      types.UID // of the cluster that has the pods; empty if unknown
	recorded bool      // the node has the annotation
	refused  error     // the cluster that answered last is another one
	tenant   *string   // of a service; nil until it was read

	warnedRead, warnedRecord sync.Once
}

// check returns an error while another cluster answers.
func (c *remoteCluster) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// known returns the UID of the cluster that has the pods, and whether the node has it.
func (c *remoteCluster) known() (types.UID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uid, c.recorded
}

func (c *remoteCluster) accept(uid types.UID, recorded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid, c.recorded, c.refused = uid, recorded, nil
}

func (c *remoteCluster) markRecorded(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded = c.uid == uid
}

// tenantOf returns the tenant of a service, and whether it was read.
func (c *remoteCluster) tenantOf() (tenant string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ptr.Deref(c.tenant, ""), c.tenant != nil
}

func (c *remoteCluster) setTenant(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenant = &tenant
}

func (c *remoteCluster) refuse(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
	return err
}

// checkRemoteCluster returns an error if the remote cluster is not the one that has this
// node's pods, or does not answer. The annotation of the node decides, and otherwise the
// first answer of a cluster. Without the right to read the UID there is no such check.
func (p *Provider) checkRemoteCluster(ctx context.Context) error {
	found, err := p.remoteUID(ctx)
	if err != nil || found == "" {
		return err
	}
	known, recorded := p.cluster.known()
	if known == found && p.cluster.check() == nil {
		return nil
	}
	node, err := p.home.Client.CoreV1().Nodes().Get(ctx, p.home.Node.Name, metav1.GetOptions{})
	if err != nil && !apierror.IsNotFound(err) {
		return errdefs.AsUnavailable(fmt.Errorf("cannot read which remote cluster has the pods of node %s: %v", p.home.Node.Name, err))
	}
	annotated := types.UID("")
	if err == nil {
		annotated = types.UID(node.Annotations[AnnotationRemoteUID])
	}
	wanted := cmp.Or(annotated, known)
	if p.service != nil {
		wanted, found = p.service.fuller(wanted, found)
	}
	if wanted != "" && wanted != found && p.service != nil {
		return p.cluster.refuse(errdefs.AsUnavailable(fmt.Errorf("the configuration leads to %s, and the pods of this node are in %s: correct it; or, if they shall stay there without this node, accept the other place: "+
			"kubectl annotate node %s --overwrite %s=%s", found, wanted, p.home.Node.Name, AnnotationRemoteUID, found)))
	}
	if wanted != "" && wanted != found {
		return p.cluster.refuse(errdefs.AsUnavailable(fmt.Errorf("the remote cluster is not the one that has the pods of this node: its kube-system has the UID %s, and that of the other one %s: "+
			"let \"remote\" of the provider's configuration lead to the other one; or, if that no longer exists, accept this one, which makes its pods again or fails them, as \"evicted\" says: "+
			"kubectl annotate node %s --overwrite %s=%s", found, wanted, p.home.Node.Name, AnnotationRemoteUID, found)))
	}
	p.cluster.accept(found, annotated == found || recorded && known == found)
	return nil
}

// remoteUID returns the UID of the remote cluster's kube-system, or nothing without the
// right to read it.
func (p *Provider) remoteUID(ctx context.Context) (types.UID, error) {
	if p.service != nil { // its tenants have no such namespace
		return p.place(ctx)
	}
	found, err := p.remote.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		p.cluster.warnedRead.Do(func() {
			log.G(ctx).WithError(err).Info("Cannot notice when another cluster takes the place of the remote cluster: grant the right to get its namespace kube-system")
		})
		return "", nil
	case err != nil:
		return "", errdefs.AsUnavailable(remoteError("read the UID of its namespace "+metav1.NamespaceSystem, err))
	case found.UID == "":
		return "", errdefs.AsUnavailable(fmt.Errorf("the remote cluster's namespace %s has no UID", metav1.NamespaceSystem))
	}
	return found.UID, nil
}

// recordRemoteCluster writes the annotation, once the node exists. It is not one of those
// that the provider reports: the node's controller would remove it at the next start,
// before it could be read.
func (p *Provider) recordRemoteCluster(ctx context.Context) {
	uid, recorded := p.cluster.known()
	if uid == "" || recorded {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{AnnotationRemoteUID: string(uid)}}})
	if err == nil {
		_, err = p.home.Client.CoreV1().Nodes().Patch(ctx, p.home.Node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	switch {
	case err == nil:
		p.cluster.markRecorded(uid)
	case !apierror.IsNotFound(err): // the node is created later
		p.cluster.warnedRecord.Do(func() {
			log.G(ctx).WithError(err).Warn("Cannot record on the node which remote cluster has its pods; retrying")
		})
	}
}
