package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
)

// nodeEvents returns the events since it was last called.
func nodeEvents(recorder *record.FakeRecorder) (events []string) {
	for {
		select {
		case event := <-recorder.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}

// The events on a Node are those of a kubelet, and what is wrong with its provider.
func TestNodeEvents(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		recorder := record.NewFakeRecorder(100)
		r.start(r.withLease(), WithNodeEventRecorder(recorder))
		wantList(t, "at the start", nodeEvents(recorder), "Normal NodeReady Node vk status is now: NodeReady", "Normal Starting Starting virtual kubelet.")
		r.pinged(func(context.Context) error { return errors.New("backend away") })
		pass(time.Hour)
		wantList(t, "of an unhealthy provider", nodeEvents(recorder), "Warning ProviderUnhealthy backend away", "Normal NodeNotReady Node vk status is now: NodeNotReady")
		r.pinged(nil)
		pass(time.Hour)
		wantList(t, "of one that is well again", nodeEvents(recorder), "Normal NodeReady Node vk status is now: NodeReady")
		r.end()
		wantList(t, "at the end", nodeEvents(recorder))
		r.start(r.withLease(), WithNodeEventRecorder(recorder))
		wantList(t, "of a restart", nodeEvents(recorder), "Normal Starting Starting virtual kubelet.")
	})
}

// ConditionReady waits for the Ready condition to be True in the API, not only for
// the registration; NotReady says why it is not.
func TestConditionReady(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		ready := func() bool {
			select {
			case <-r.nc.ConditionReady():
				return true
			default:
				return false
			}
		}
		wantWhy := func(what, text string) {
			t.Helper()
			if why := r.nc.NotReady(); why == nil || !strings.Contains(why.Error(), text) {
				t.Errorf("%s: not ready because of %v, want %q", what, why, text)
			}
		}
		r.pinged(func(context.Context) error { return errors.New("no credit") })
		r.api.Fail("get nodes", apierrors.NewServiceUnavailable("away"))
		r.launch(r.withLease())
		pass(time.Minute)
		wantWhy("while the API server is away", "away")
		r.api.Fail("get nodes", nil)
		pass(30 * time.Second)
		select {
		case <-r.nc.Ready():
		default:
			t.Fatal("the node is not registered")
		}
		want(t, "ready", ready(), false)
		wantWhy("while the provider is not well", "no credit")
		r.pinged(nil)
		pass(30 * time.Second)
		want(t, "ready", ready(), true)
		want(t, "why not", r.nc.NotReady(), nil)
		// A provider may say so of its node itself.
		r.notify(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "Drained", Message: "for maintenance"}}}})
		pass(time.Minute)
		wantWhy("by the word of the provider", "Drained: for maintenance")
	})
}
