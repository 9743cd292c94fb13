package clusteruid

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// newCluster is one whose namespace kube-system has the UID "here", and that answers
// with what err returns.
func newCluster(err func() error) *fake.Clientset {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "here"}})
	fakeapi.React(&client.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := err()
		return err != nil, nil, err
	})
	return client
}

func TestTheUIDIsReadOnce(t *testing.T) {
	client := newCluster(func() error { return nil })
	r := New(client.CoreV1())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			if uid, err := r.UID(t.Context()); uid != "here" || err != nil {
				t.Errorf("the UID is %q: %v", uid, err)
			}
		})
	}
	running.Wait()
	if n := len(client.Actions()); n != 1 {
		t.Errorf("it was asked for %d times", n)
	}
}

func TestAFailureIsTriedAgain(t *testing.T) {
	for _, failure := range []error{
		errors.New("connection refused"),
		apierrors.NewForbidden(corev1.Resource("namespaces"), metav1.NamespaceSystem, errors.New("no rights")),
		apierrors.NewNotFound(corev1.Resource("namespaces"), metav1.NamespaceSystem),
	} {
		synctest.Test(t, func(t *testing.T) {
			err := failure
			client := newCluster(func() error { return err })
			r := New(client.CoreV1())
			for range 3 {
				if uid, got := r.UID(t.Context()); uid != "" || !errdefs.IsUnavailable(got) || errdefs.IsNotFound(got) {
					t.Errorf("with %v the UID is %q: %v", failure, uid, got)
				} else if apierrors.IsForbidden(failure) && (!strings.Contains(got.Error(), "print-rbac") || !strings.Contains(got.Error(), "--node-identity")) {
					t.Errorf("the error does not say what to do: %v", got)
				} else if IsLasting(got) != (apierrors.ReasonForError(failure) != metav1.StatusReasonUnknown) {
					t.Errorf("whether it lasts is not known of %v", got)
				}
			}
			if n := len(client.Actions()); n != 1 {
				t.Errorf("it was asked for %d times at once", n)
			}
			err = nil
			time.Sleep(retryDelay)
			if uid, err := r.UID(t.Context()); uid != "here" || err != nil {
				t.Errorf("after %v the UID is %q: %v", failure, uid, err)
			}
		})
	}
}

// An API server that hangs holds up nobody longer than his context, and its timeout.
func TestARequestThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		client := newCluster(func() error { <-release; return nil })
		r := New(client.CoreV1())
		var first sync.WaitGroup
		first.Go(func() { _, _ = r.UID(t.Context()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := r.UID(ctx); !errdefs.IsUnavailable(err) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(release)
		first.Wait()
	})
}
