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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// The longest delays between two requests.
const (
	// maxDelay is about the one between the renewals of a node's lease, so that a large
	// fleet asks no more often in an outage than it does anyway.
	maxDelay = 10 * time.Second
	// maxRefusalDelay is for refusals to read what pods name: see PatientOfMany.
	maxRefusalDelay = 3 * time.Minute
)

// Patient returns a ListWatch whose requests do not fail while the API server
// cannot be reached, or refuses them: they are repeated until it answers, or ctx
// ends, with delays that grow to ten seconds. Other answers, errors too, are
// the caller's. what names the objects in the log.
func Patient(what string, lw *cache.ListWatch) *cache.ListWatch {
	return patient(what, lw, maxDelay)
}

// PatientOfMany is Patient for ListWatches of which there may be very many, one for
// each object that a pod names. After a refusal (401, 403), which may last as long as
// the pod, the delays grow to three minutes.
func PatientOfMany(what string, lw *cache.ListWatch) *cache.ListWatch {
	return patient(what, lw, maxRefusalDelay)
}

func patient(what string, lw *cache.ListWatch, afterRefusal time.Duration) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return retry(ctx, what, afterRefusal, func() (runtime.Object, error) { return lw.ListWithContext(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return retry(ctx, what, afterRefusal, func() (watch.Interface, error) { return lw.WatchWithContext(ctx, options) })
		},
		DisableChunking: lw.DisableChunking,
	}
}

func retry[T any](ctx context.Context, what string, afterRefusal time.Duration, request func() (T, error)) (T, error) {
	outage, refusal := periodic.Backoff(maxDelay), periodic.Backoff(afterRefusal)
	logged := ""
	for {
		answer, err := request()
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			return answer, err
		}
		if err.Error() != logged {
			logged = err.Error()
			log.G(ctx).WithError(err).WithField("objects", what).Warn("Cannot watch; trying again until it works")
		}
		delay := &outage
		if refused(err) {
			delay = &refusal
		}
		if periodic.Sleep(ctx, delay.Step()) != nil {
			return answer, err
		}
	}
}

// mayPass reports whether an error comes from the way to the API server, from one
// that asks to come back later, or from one that does not know yet what we may:
// for some seconds after its start it has no roles.
func mayPass(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || refused(err)
	}
	return true
}

func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
