package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// olderPodDelay is when to retry a creation while an older pod of the same name is
// deleted.
const olderPodDelay = time.Second

// CreatePod implements node.PodLifecycleHandler. It first writes what the pod needs,
// then the pod.
func (p *Provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := p.ensureIdentified(ctx); err != nil {
		return err
	}
	if err := translate.CheckResolved(pod); err != nil {
		return err
	}
	wanted, err := p.remotePod(ctx, pod)
	if err != nil {
		return err
	}
	if err := p.ensureNamespace(ctx, wanted.Namespace); err != nil {
		return err
	}
	if err := p.reflector.RegisterPod(ctx, pod, wanted); err != nil {
		if errors.As(err, new(translate.NameConflict)) {
			return errdefs.AsConflict(err)
		}
		if apierrors.IsNotFound(err) { // it may be the namespace, which was deleted
			p.forgetNamespace(wanted.Namespace)
		}
		if errdefs.IsPermanent(err) {
			return errdefs.AsPermanent(fmt.Errorf("cannot copy what the pod needs to the remote cluster: %v", err))
		}
		return fmt.Errorf("cannot copy what the pod needs to the remote cluster: %v", err)
	}
	err = p.create(ctx, pod, wanted)
	if err == nil {
		p.recordSeen(pod.UID)
		p.addEphemeralLater(pod)
	}
	if errdefs.IsConflict(err) || errdefs.IsPermanent(err) {
		p.reflector.UnregisterPod(pod.UID) // it may be long until the next attempt
	}
	return err
}

// Unsupported returns why a pod is refused, if it needs what the remote cluster, or the service,
// does not have, or the configuration does not allow. What is not missing is not ignored either.
func (p *Provider) Unsupported(pod *corev1.Pod) (missing, ignored []string) {
	if _, err := p.remotePod(context.Background(), pod); err != nil {
		missing = []string{err.Error()}
	}
	return missing, nil
}

// remotePod returns the remote pod to create for a home pod.
func (p *Provider) remotePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	var volumes map[string]string
	if p.claims != nil {
		var err error
		if volumes, err = p.claims.RemoteClaims(ctx, pod); err != nil {
			return nil, err
		}
	}
	remote, err := p.translate.Pod(pod, volumes)
	if err != nil || p.service == nil {
		return remote, err
	}
	at, err := p.remoteName(pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return nil, err
	}
	remote.Name = at.Name
	if p.service.CompletePod != nil {
		err = p.service.CompletePod(remote)
	}
	return remote, err
}

func (p *Provider) create(ctx context.Context, pod, wanted *corev1.Pod) error {
	created, err := p.remote.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: translate.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return p.deleteOlder(ctx, pod, wanted)
	case apierror.IsRejected(err) && !translate.MayBeAdmission(err):
		return errdefs.AsPermanent(fmt.Errorf("the remote cluster refuses the pod: %w", err))
	case apierror.IsNotFound(err): // the namespace was deleted
		p.forgetNamespace(wanted.Namespace)
		return fmt.Errorf("cannot create the pod in the remote cluster: %v", err)
	case err != nil:
		return fmt.Errorf("cannot create the pod in the remote cluster: %v", err)
	}
	p.recordNamespace(wanted.Namespace)
	return p.checkCreated(ctx, pod, created)
}

// deleteOlder handles a remote pod that has the name of a new one. If it is that pod,
// all is well; an older pod of this node is deleted first; a pod of somebody else
// stays.
func (p *Provider) deleteOlder(ctx context.Context, pod, wanted *corev1.Pod) error {
	found, err := p.remote.CoreV1().Pods(wanted.Namespace).Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return errdefs.AsRetryAfter(errors.New("the pod of the same name in the remote cluster was just deleted; retrying"), olderPodDelay)
	case err != nil:
		return fmt.Errorf("cannot read the pod of the same name in the remote cluster: %w", apierror.OrUnavailable(err))
	case !p.translate.Home.Owns(found) || translate.NameOf(found) != translate.Key(pod):
		return errdefs.AsConflict(p.translate.Home.NameConflict("Pod", found))
	case translate.UIDOf(found) == pod.UID && found.DeletionTimestamp == nil:
		return p.registerUpdated(ctx, pod, found) // another version or configuration may have made it
	}
	if err := p.delete(ctx, found, minGracePeriod); err != nil && !apierror.IsNotFound(err) {
		return err
	}
	if isLikelyPastDeadline(found) {
		return errdefs.AsRetryAfter(errors.New("an older pod of the same name is still in the remote cluster: its node does not confirm that it has stopped"), deletionDeadline)
	}
	return errdefs.AsRetryAfter(errors.New("an older pod of the same name is still in the remote cluster"), olderPodDelay)
}

// DeletePod implements node.PodLifecycleHandler. The remote pod is read first unless it is
// still the version in the cache.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	p.cancelReplacement(pod.UID)
	grace := ptr.Deref(pod.DeletionGracePeriodSeconds, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	if err := p.deleteObserved(ctx, pod, grace); !apierror.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	remote, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return err
	}
	return p.delete(ctx, remote, grace)
}

// deleteObserved deletes the remote pod of a home pod if the cache has its current version,
// which nobody has begun to delete. Errors of class NotFound and Conflict mean that it has
// not, or that it is unknown.
func (p *Provider) deleteObserved(ctx context.Context, pod *corev1.Pod, grace int64) error {
	observed := p.cachedPod(pod.Namespace, pod.Name, pod.UID)
	if observed == nil || observed.DeletionTimestamp != nil {
		return errdefs.NotFound("the cache does not have the pod as it runs in the remote cluster")
	}
	if err := p.ensureIdentified(ctx); err != nil {
		return err
	}
	return p.requestDeletion(ctx, observed, grace, &metav1.Preconditions{UID: &observed.UID, ResourceVersion: &observed.ResourceVersion})
}

// minGracePeriod is the shortest grace period, in seconds, with which the remote node
// confirms that the containers have stopped. With 0 the API server would remove a pod
// whose containers may still run, beside another pod of the same name.
const minGracePeriod = 1

// delete deletes a remote pod. The UID makes sure that it is not another pod of the
// same name.
func (p *Provider) delete(ctx context.Context, remote *corev1.Pod, grace int64) error {
	if remote.DeletionTimestamp != nil && ptr.Deref(remote.DeletionGracePeriodSeconds, 0) <= max(grace, minGracePeriod) {
		return nil // it is being deleted
	}
	return p.requestDeletion(ctx, remote, grace, metav1.NewUIDPreconditions(string(remote.UID)))
}

func (p *Provider) requestDeletion(ctx context.Context, remote *corev1.Pod, grace int64, is *metav1.Preconditions) error {
	grace = max(grace, minGracePeriod)
	err := p.remote.CoreV1().Pods(remote.Namespace).Delete(ctx, remote.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: is})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete the pod in the remote cluster: %w", apierror.OrUnavailable(err))
	}
	return err
}

// find reads the remote pod of a home pod from the remote API server. Without a UID it
// goes by the name. An error of class NotFound means that there is none.
func (p *Provider) find(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	at, err := p.remoteName(namespace, name, uid)
	if err != nil {
		return nil, errdefs.NotFoundf("pod %s/%s is not in the remote cluster: %v", namespace, name, err)
	}
	if err := p.ensureIdentified(ctx); err != nil {
		return nil, err
	}
	found, err := p.remote.CoreV1().Pods(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		switch adopted, err := p.adoptOlder(ctx, namespace, name, uid); {
		case err != nil:
			return nil, errdefs.AsUnavailable(err)
		case adopted:
			return p.find(ctx, namespace, name, uid)
		}
		return nil, errdefs.NotFoundf("pod %s/%s is not in the remote cluster", namespace, name)
	case err != nil:
		return nil, errdefs.AsUnavailable(fmt.Errorf("cannot read the pod in the remote cluster: %v", err))
	case uid != "" && p.restoreLabels(types.NamespacedName{Namespace: namespace, Name: name}, uid, found): // to be deleted, see confirm
	case uid != "" && !p.isOf(uid, found), uid == "" && (!p.translate.Home.Owns(found) || translate.NameOf(found) != types.NamespacedName{Namespace: namespace, Name: name}):
		return nil, errdefs.NotFoundf("pod %s/%s is not in the remote cluster, but another of that name", namespace, name)
	}
	return found, nil
}

// findCurrent reads the remote pod of the pod that home has by a name: an older one may be
// left. Without such a pod it goes by the name.
func (p *Provider) findCurrent(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var uid types.UID
	if local, err := p.home.Pods.Pods(namespace).Get(name); err == nil {
		uid = local.UID
	}
	return p.find(ctx, namespace, name, uid)
}

// readAgain returns a remote pod of a home pod as the remote cluster has it now, or nil if
// it is gone.
func (p *Provider) readAgain(ctx context.Context, observed *corev1.Pod, uid types.UID) (*corev1.Pod, error) {
	name := translate.NameOf(observed)
	remote, err := p.find(ctx, name.Namespace, name.Name, uid)
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil || remote.UID == observed.UID:
		return remote, err
	}
	return nil, nil
}

// ensureNamespace creates a remote namespace, if the configuration allows it, unless it
// is known to exist.
func (p *Provider) ensureNamespace(ctx context.Context, name string) error {
	p.mu.Lock()
	_, known := p.namespaces[name]
	p.mu.Unlock()
	if known {
		return nil
	}
	return p.createNamespace(ctx, name)
}

func (p *Provider) createNamespace(ctx context.Context, name string) error {
	if !p.cfg.Namespaces.Create {
		return nil
	}
	if p.service != nil {
		if err := p.service.PrepareNamespace(ctx, p.remote, name); err != nil {
			return fmt.Errorf("cannot use namespace %s: %w", name, err)
		}
		p.recordNamespace(name)
		return nil
	}
	_, err := p.remote.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{translate.LabelCluster: p.cfg.Cluster, translate.LabelClusterUID: string(p.translate.Home.UID)},
	}}, metav1.CreateOptions{FieldManager: translate.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot create namespace %s in the remote cluster: %w", name, err)
	}
	if err == nil {
		log.G(ctx).WithField("remoteNamespace", name).Info("Created a namespace in the remote cluster")
	}
	p.recordNamespace(name)
	return nil
}

// recordNamespace records that a remote namespace exists.
func (p *Provider) recordNamespace(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.namespaces[name] = struct{}{}
}

// forgetNamespace records that a remote namespace was deleted: it is created again, if
// the configuration allows it, with the copies that were in it.
func (p *Provider) forgetNamespace(name string) {
	p.mu.Lock()
	_, known := p.namespaces[name]
	delete(p.namespaces, name)
	p.mu.Unlock()
	if known { // otherwise the copies are being written already
		p.reflector.RewriteNamespace(name)
	}
}
