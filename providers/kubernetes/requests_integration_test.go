//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// TestRequestsOfPlainPods counts what pods with one container, and the volume that the
// API server adds, cost from their creation to their end. In the remote cluster a client of
// its own would create and delete each; the provider needs no more than a Secret for the
// token besides. At home the node reports what a kubelet does. docs/providers.md shows what
// the remote cluster is asked with tokens.
func TestRequestsOfPlainPods(t *testing.T) {
	t.Parallel() // it mostly waits
	home, askedHome := startAudited(t)
	remote, askedRemote := startAudited(t)
	startMock(t, remote, "remote-1")
	homeClient := newClient(t, home.as(home.account("kubernetes-rbac.yaml")))
	access := remoteOf(remote, remote.account("kubernetes-remote-rbac.yaml"))
	var m *meter
	m, access.Server = startMeter(t, access.Server)
	w := &world{t: t, home: home, remote: remote, namespaces: translate.Namespaces{Mapping: translate.Same}}
	for tokens, most := range map[string]struct{ home, remote int }{
		"home":     {home: 10, remote: 4},
		"disabled": {home: 9, remote: 2},
	} {
		t.Run("tokens "+tokens, func(t *testing.T) {
			virtual := startVirtual(t, homeClient, configOf(t, access, "tokens: "+tokens+"\n"))
			defer virtual.end()
			first := w.waitRunning(t, w.pod(t, "first", nil)) // what pods share stays with it
			const count = 20
			atHome, begun := askedHome.aboutPods(t), m.read(t, askedRemote)
			pods := w.createPlain(t, count)
			created := m.read(t, askedRemote)
			if os.Getenv(grouptest.CallsVariable) != "" {
				time.Sleep(time.Minute) // only where the numbers are written
			}
			rested := m.read(t, askedRemote)
			w.deletePlain(t, pods)
			ended := m.read(t, askedRemote)
			wantAtMost(t, "at home", count*most.home, askedHome.aboutPods(t), atHome)
			wantAtMost(t, "in the remote cluster", count*most.remote, ended.requests, begun.requests)
			if tokens == "home" {
				create, end := created.since(begun), ended.since(rested)
				rest, each := rested.since(created), 1000/count
				grouptest.Calls{
					Create: create.calls * each, Minute: rest.calls, Delete: end.calls * each,
					Sent:     grouptest.Bytes{Create: create.sent * each, Minute: rest.sent, Delete: end.sent * each},
					Received: grouptest.Bytes{Create: create.received * each, Minute: rest.received, Delete: end.received * each},
				}.Compare(t, grouptest.CallsFile)
			}
			w.delete(t, first)
			w.waitNothingOf(t, first)
		})
	}
}

// createPlain creates pods, and waits until they run.
func (w *world) createPlain(t *testing.T, count int) (pods []*corev1.Pod) {
	t.Helper()
	for i := range count {
		pods = append(pods, w.pod(t, fmt.Sprint("plain-", i), nil))
	}
	for _, pod := range pods {
		w.waitRunning(t, pod)
	}
	return pods
}

// deletePlain deletes pods, and waits until they are gone, with what was copied for them.
func (w *world) deletePlain(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := w.home.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		w.delete(t, pod)
		w.waitNothingOf(t, pod)
	}
}

// aboutPods counts the requests so far that are about pods, or what they need.
func (a audit) aboutPods(t *testing.T) (asked map[string]int) {
	t.Helper()
	// The audit log has a request a moment after its effect can be seen.
	eventually(t, "all requests are logged", func(context.Context) error {
		before := asked
		asked = map[string]int{}
		for _, request := range a.requests(t) {
			of := request.ObjectRef
			if of.Resource == "leases" || of.Resource == "nodes" || request.Verb == "list" || request.Verb == "watch" {
				continue
			}
			what := request.Verb + " " + of.Resource
			if of.Subresource != "" {
				what += "/" + of.Subresource
			}
			asked[what]++
		}
		if !maps.Equal(before, asked) {
			return fmt.Errorf("there are %v", asked)
		}
		return nil
	})
	return asked
}

// wantAtMost checks how many requests there were between two counts.
func wantAtMost(t *testing.T, where string, most int, after, before map[string]int) {
	t.Helper()
	all, each := 0, map[string]int{}
	for what, n := range after {
		if n -= before[what]; n > 0 {
			each[what] = n
			all += n
		}
	}
	t.Logf("%s: %d requests: %v", where, all, each)
	// A status that comes in between makes some of a pod's requests two.
	if most += most / 5; all > most {
		t.Errorf("%s: %d requests, want at most %d: %v", where, all, most, each)
	}
}

// testCopyConflict has a Secret of somebody else under the name of a copy: it stays as it is,
// although the copy is written without a question whether there is one.
func (w *world) testCopyConflict(t *testing.T) {
	taken := metav1.ObjectMeta{Name: (&translate.Options{Home: translate.Home{Cluster: "home", Node: homeNode}}).ObjectName(translate.KindSecret, "default", "keys")}
	there := w.remote.client.CoreV1().Secrets(w.at(t, "reader").Namespace)
	other, err := there.Create(t.Context(), &corev1.Secret{ObjectMeta: taken}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	atHome := w.home.client.CoreV1().Secrets("default")
	if _, err := atHome.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"key": []byte("one")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(t, "reader", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	})
	w.waitEvent(t, pod, "left alone")
	if now, err := there.Get(t.Context(), taken.Name, metav1.GetOptions{}); err != nil || now.ResourceVersion != other.ResourceVersion {
		t.Errorf("the Secret of somebody else was touched: %v %+v", err, now)
	}
	w.delete(t, pod)
	if err := errors.Join(there.Delete(t.Context(), taken.Name, metav1.DeleteOptions{}), atHome.Delete(t.Context(), "keys", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
}
