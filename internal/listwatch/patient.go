// Package listwatch makes listing and watching sit out an outage of the API
// server, so that what was missed is known seconds after its end. client-go's
// reflectors wait up to a minute between two attempts.
package listwatch

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Patient returns a ListWatch whose requests do not fail while the API server
// cannot be reached, or does not let us in: they are repeated until it does, or
// ctx ends. The delay grows to that between the renewals of a node's lease, so a
// large fleet asks no more often than it does anyway. Other answers, errors too,
// are the caller's. what names the objects in the log.
func Patient(what string, lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return retry(ctx, what, func() (runtime.Object, error) { return lw.ListWithContext(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return retry(ctx, what, func() (watch.Interface, error) { return lw.WatchWithContext(ctx, options) })
		},
		DisableChunking: lw.DisableChunking,
	}
}

func retry[T any](ctx context.Context, what string, request func() (T, error)) (T, error) {
	backoff := wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 7 * time.Second}
	said := ""
	for {
		answer, err := request()
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			return answer, err
		}
		if err.Error() != said {
			said = err.Error()
			log.G(ctx).WithError(err).Warnf("Cannot watch %s; trying again until it works", what)
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(backoff.Step()):
		}
	}
}

// mayPass tells whether an error comes from the way to the API server, from one
// that asks to come back later, or from one that does not know yet what we may:
// for some seconds after its start it has no roles.
func mayPass(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	}
	return true
}
