package listwatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// server is an API server that answers with err while there is one.
type server struct {
	mu       sync.Mutex
	err      error
	requests int
}

func (s *server) answer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	return s.err
}

func (s *server) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

func (s *server) listWatch() *cache.ListWatch {
	return listwatch.Patient("pods", &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{}, s.answer()
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewEmptyWatch(), s.answer()
		},
	})
}

var pods = schema.GroupResource{Resource: "pods"}

// An informer is up to date within seconds of the end of an outage, however
// long it took, and asked no more often than a lease is renewed meanwhile.
func TestOutageIsOverSoon(t *testing.T) {
	for name, failure := range map[string]error{
		"refused":      errors.New("connection refused"),
		"unavailable":  apierrors.NewServiceUnavailable("starting"),
		"no roles yet": apierrors.NewForbidden(pods, "", nil),
	} {
		t.Run(name, func(t *testing.T) { outageIsOverSoon(t, failure) })
	}
}

func outageIsOverSoon(t *testing.T, failure error) {
	synctest.Test(t, func(t *testing.T) {
		api := &server{err: failure}
		done := make(chan error, 1)
		go func() {
			_, err := api.listWatch().WatchWithContext(t.Context(), metav1.ListOptions{})
			done <- err
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if api.requests > 90 {
			t.Errorf("%d requests in ten minutes of outage", api.requests)
		}
		api.recover()
		returned := time.Now()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(returned); took > 11*time.Second {
			t.Errorf("watching again only %v after the outage", took)
		}
	})
}

func TestAnswersAreTheCallers(t *testing.T) {
	for name, answer := range map[string]error{
		"none":    nil,
		"expired": apierrors.NewResourceExpired("too old"),
		"timeout": apierrors.NewTimeoutError("Too large resource version", 1),
	} {
		t.Run(name, func(t *testing.T) {
			api := &server{err: answer}
			if _, err := api.listWatch().ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, answer) {
				t.Errorf("got %v, want %v", err, answer)
			}
			if api.requests != 1 {
				t.Errorf("%d requests", api.requests)
			}
		})
	}
}

func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &server{err: apierrors.NewServiceUnavailable("starting")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := api.listWatch().ListWithContext(ctx, metav1.ListOptions{}); err == nil {
			t.Error("no error, and no answer either")
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("ended after %v", took)
		}
	})
}
