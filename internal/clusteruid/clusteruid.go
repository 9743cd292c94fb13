// Package clusteruid reads what identifies a cluster: the UID of its
// namespace kube-system. Names in configurations are copied; this UID is made once,
// by the API server, which does not let the namespace be deleted, and a cluster that is
// restored from a backup keeps it.
package clusteruid

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// timeout is how long one request may take.
	timeout = 10 * time.Second
	// retryDelay is for how long a failure answers, without another request.
	retryDelay = 2 * time.Second
)

// Reader reads the UID once, and remembers it. Make it with New. It is safe for
// concurrent use.
type Reader struct {
	namespaces corev1client.NamespaceInterface
	known      atomic.Pointer[types.UID]
	turn       chan struct{} // holds one token while a request is made

	failed error // of the last request; the turn is held for these
	next   time.Time
}

// New returns a Reader that has read nothing yet.
func New(namespaces corev1client.NamespacesGetter) *Reader {
	return &Reader{namespaces: namespaces.Namespaces(), turn: make(chan struct{}, 1)}
}

// UID returns the UID. Until it is known each call asks the API server, one at a time,
// and not within two seconds of a failure, whose error answers then. Errors are of
// class Unavailable, also where the right is missing: it may be granted.
func (r *Reader) UID(ctx context.Context) (types.UID, error) {
	if uid := r.known.Load(); uid != nil {
		return *uid, nil
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return "", errdefs.AsUnavailable(fmt.Errorf("read the UID of namespace %s: %w", metav1.NamespaceSystem, context.Cause(ctx)))
	}
	if uid := r.known.Load(); uid != nil {
		return *uid, nil
	}
	if time.Now().Before(r.next) {
		return "", r.failed
	}
	uid, err := r.read(ctx)
	if err != nil {
		if ctx.Err() == nil { // else it says nothing about the API server
			r.failed, r.next = err, time.Now().Add(retryDelay)
		}
		return "", err
	}
	r.known.Store(&uid)
	return uid, nil
}

func (r *Reader) read(ctx context.Context) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := r.namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	answered := err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	switch {
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%v: grant the right to get the namespace %s, as \"virtual-kubelet config print-rbac\" prints it, for a node with an identity of its own with --node-identity", err, metav1.NamespaceSystem)
	case err == nil && found.UID == "":
		err = errors.New("it has none")
	}
	if err == nil {
		return found.UID, nil
	}
	// Without its class: a namespace that is not there is no pod that is not.
	err = errdefs.AsUnavailable(fmt.Errorf("read the UID of namespace %s, which distinguishes this cluster's objects from those of others: %v", metav1.NamespaceSystem, err))
	if answered {
		err = lasting{err}
	}
	return "", err
}

// lasting is an error that does not pass by itself.
type lasting struct{ error }

// Unwrap returns the error with its class.
func (l lasting) Unwrap() error { return l.error }

// IsLasting reports whether an error of Reader.UID is an answer, such as that the right is missing: it
// may be granted, but that does not come by itself.
func IsLasting(err error) bool {
	_, is := errors.AsType[lasting](err)
	return is
}
