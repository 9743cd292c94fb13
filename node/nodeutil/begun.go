package nodeutil

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

var (
	errNotBegun = errdefs.AsUnavailable(errors.New("the node has not begun with its pods yet"))
	errPodsOver = errdefs.AsUnavailable(errors.New("the node does not run its pods any more"))
)

// begun returns nil while requests may be the provider's to answer: from when the claim was
// acquired, NotifyPods has returned and the API server has shown the pods, until the pod
// controller has ended. Its first GetPods, which may take long, is not waited for. Else the
// error says why not.
func (n *Node) begun() error {
	switch {
	case isClosed(n.pods.Done()):
		return errPodsOver
	case n.pods.Begun() && n.known.HasSynced():
		return nil
	case n.cfg.Claim != nil:
		if waiting := n.cfg.Claim.Waiting(); waiting != nil {
			return errdefs.AsUnavailable(fmt.Errorf("the node has not begun with its pods yet: %v", waiting)) // which is of no class here
		}
	}
	return errNotBegun
}

func isClosed(c <-chan struct{}) bool { return closed(c, "") == nil }

// mayBegin is ProviderConfig.MayBegin for a claim. The controllers may be over while it is kept.
func (n *Node) mayBegin(claim *node.Claim) func() bool {
	return func() bool { return !n.over.Load() && claim.Acquired() && claim.MayBegin() }
}

// onceBegun is f, a function of the provider or nil, which fails unless n has begun.
func onceBegun[T any](n *Node, f func(context.Context) (T, error)) func(context.Context) (T, error) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context) (answer T, err error) {
		if err := n.begun(); err != nil {
			return answer, err
		}
		return f(ctx)
	}
}

// serveOnceBegun answers 503 unless n has begun.
func (n *Node) serveOnceBegun(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := n.begun(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	})
}
