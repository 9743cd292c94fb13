package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// A Node that another provider, or no virtual kubelet, made is refused before
// anything is written, unless it is to be adopted.
func TestNodesOfOthersAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		refused             string // "": it is accepted
	}{
		"of the same provider":               {labels: map[string]string{LabelProvider: "mock"}},
		"of an older virtual kubelet":        {labels: map[string]string{"type": "virtual-kubelet"}},
		"of one that set its own labels":     {annotations: map[string]string{annotationOwned: "{}"}},
		"of another provider":                {labels: map[string]string{LabelProvider: "process", "type": "virtual-kubelet"}, refused: `provider "process"`},
		"of a provider with an empty name":   {labels: map[string]string{LabelProvider: "", "type": "virtual-kubelet"}, refused: `provider ""`},
		"of a kubelet":                       {labels: map[string]string{"kubernetes.io/os": "linux"}, refused: "not made by a virtual kubelet"},
		"that an administrator has prepared": {refused: "not made by a virtual kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: tc.labels, Annotations: tc.annotations}}
				if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				leases := &versionedLeases{}
				config := identified("first")
				config.Provider = "mock"
				p := newProcess(t, r, leases, config)
				p.node.Labels = map[string]string{LabelProvider: "mock"}
				r.api.Written()
				p.begin()
				pass(time.Minute)
				if tc.refused == "" {
					want(t, "acts", p.acts(), true)
					want(t, "provider", r.api.Node("vk").Labels[LabelProvider], "mock")
					return
				}
				<-p.nc.Done()
				err := p.nc.Err()
				if err == nil || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(err.Error(), "--adopt-node") || !errdefs.IsConflict(err) {
					t.Errorf("Run returned %v, want a conflict that says %q", err, tc.refused)
				}
				_ = p.stop()
				p.stop = nil
				wantList(t, "writes", r.api.Written())
				want(t, "writes of the lease", leases.version, 0)

				config.Adopt, config.Pods = true, func(context.Context) ([]corev1.Pod, error) { return nil, nil }
				p = newProcess(t, r, leases, config)
				p.node.Labels = map[string]string{LabelProvider: "mock"}
				p.begin()
				pass(time.Minute)
				want(t, "acts", p.acts(), true)
				want(t, "provider", r.api.Node("vk").Labels[LabelProvider], "mock")
			})
		})
	}
}

// One of many nodes is looked at again, since the others run on meanwhile.
func TestRefusedNodeOfAPatientControllerIsTriedAgain(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}
		if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := identified("first")
		config.Provider = "mock"
		p := newProcess(t, r, &versionedLeases{}, config)
		p.launch(WithNodePatience(), WithNodeClaim(p.claim))
		pass(5 * time.Minute)
		want(t, "acts", p.acts(), false)
		if waiting := p.claim.Waiting(); waiting == nil || !strings.Contains(waiting.Error(), "refused") {
			t.Errorf("waits for %v, want the refusal", waiting)
		}
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		want(t, "acts", p.acts(), true)
	})
}

// Which pods another provider runs is on the Node, so that they are left alone for
// as long as they exist, across restarts, and until that provider is back.
func TestPodsOfAnotherProviderAreLeftAlone(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		var pods []corev1.Pod
		addPod := func(name string, status corev1.PodStatus) {
			pod := corev1.Pod{Status: status}
			pod.Name, pod.UID = name, types.UID("uid-of-"+name)
			pods = append(pods, pod)
		}
		begun := metav1.Now()
		addPod("running", corev1.PodStatus{Phase: corev1.PodRunning})
		addPod("starting", corev1.PodStatus{Phase: corev1.PodPending, StartTime: &begun})
		addPod("pulling", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{}}})
		addPod("bound", corev1.PodStatus{Phase: corev1.PodPending})
		addPod("done", corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: &begun})
		leases := &versionedLeases{}
		run := func(id, provider string, adopt bool) *process {
			config := identified(id)
			config.Provider, config.Adopt = provider, adopt
			config.Pods = func(context.Context) ([]corev1.Pod, error) { return pods, nil }
			p := newProcess(t, r, leases, config)
			p.node.Labels = map[string]string{LabelProvider: provider}
			p.begin()
			pass(time.Second)
			if !p.acts() {
				t.Fatalf("%s does not act", id)
			}
			return p
		}
		left := func(p *process) string {
			var names []string
			for _, pod := range pods {
				if p.claim.LeftAlone(&pod) {
					names = append(names, pod.Name)
				}
			}
			return fmt.Sprint(names)
		}
		p := run("a", "process", false)
		want(t, "left alone by the first provider", left(p), "[]")
		p.end()

		p = run("b", "mock", true)
		want(t, "left alone", left(p), "[running starting pulling]")
		pass(time.Hour)
		p.end()

		addPod("new", corev1.PodStatus{Phase: corev1.PodRunning})
		pods = pods[1:] // the first is gone
		p = run("c", "mock", false)
		want(t, "left alone after a restart", left(p), "[starting pulling]")
		want(t, "pods left alone", len(p.claim.PodsLeftAlone()), 2)
		p.end()

		p = run("d", "process", true)
		want(t, "left alone by the first provider, which is back", left(p), "[new]")
		p.end()
		pods = nil
		p = run("e", "process", false)
		want(t, "left alone when all are gone", left(p), "[]")
		if text, ok := r.api.Node("vk").Annotations[annotationLeftAlone]; ok {
			t.Errorf("the annotation is %q, want none", text)
		}
	})
}

// Whose the Node is, and which pods are left alone, is on it before this process begins a
// pod: after a restart its own would be taken for those of the other provider.
func TestAdoptionIsWrittenBeforeAnythingRuns(t *testing.T) {
	for name, labels := range map[string]map[string]string{"of another provider": {LabelProvider: "process", "kept": ""}, "of no virtual kubelet": {"kept": ""}} {
		t.Run(name, func(t *testing.T) {
			nodeBubble(t, func(t *testing.T, r *nodeRig) {
				found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: labels}}
				if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "other"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
				var changed atomic.Bool
				acquire := func(id string) *process {
					config := identified(id)
					config.Provider, config.Adopt = "mock", true
					config.Identity.Ended = func(string) bool { return true }
					config.Pods = func(context.Context) ([]corev1.Pod, error) {
						if !changed.Swap(true) { // by somebody else, since the Node was read
							r.api.ChangeNode("vk", func(n *corev1.Node) { n.Spec.Unschedulable = true })
						}
						return pods, nil
					}
					p := newProcess(t, r, &versionedLeases{}, config)
					p.node.Labels = map[string]string{LabelProvider: "mock"}
					if err := p.claim.Acquire(t.Context()); err != nil {
						t.Fatal(err)
					}
					return p
				}
				acquire("killed before the registration")
				pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "ours"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
				p := acquire("second")
				want(t, "the other provider's is left alone", p.claim.LeftAlone(&pods[0]), true)
				want(t, "ours is left alone", p.claim.LeftAlone(&pods[1]), false)
				p.begin()
				want(t, "acts", p.acts(), true)
				_, kept := r.api.Node("vk").Labels["kept"]
				want(t, "a label of others is kept", kept, true)
			})
		})
	}
}

// Nothing is begun on a Node whose adoption the API server does not accept.
func TestAdoptionThatIsNotAccepted(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{LabelProvider: "process"}}}
		if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := identified("a")
		config.Provider, config.Adopt = "mock", true
		config.Pods = func(context.Context) ([]corev1.Pod, error) { return nil, nil }
		p := newProcess(t, r, &versionedLeases{}, config)
		p.node.Labels = map[string]string{LabelProvider: "mock"}
		r.api.Fail("patch nodes", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "vk", nil))
		p.begin()
		pass(time.Minute)
		want(t, "acts", p.acts(), false)
		if waiting := p.claim.Waiting(); !apierrors.IsInvalid(waiting) || !strings.Contains(waiting.Error(), "adopt node vk") {
			t.Errorf("waits for %v, want that the Node cannot be adopted", waiting)
		}
		r.api.Fail("patch nodes", nil)
		pass(15 * time.Second)
		want(t, "acts", p.acts(), true)
	})
}

// A process that ends before its adoption is accepted gives the lease back, which it took before.
func TestAdoptionThatIsNotAcceptedKeepsNoLease(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{LabelProvider: "process"}}}
		if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		leases := &versionedLeases{}
		config := identified("a")
		config.Provider, config.Adopt = "mock", true
		config.Pods = func(context.Context) ([]corev1.Pod, error) { return nil, nil }
		p := newProcess(t, r, leases, config)
		r.api.Fail("patch nodes", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "vk", nil))
		p.begin()
		pass(time.Minute)
		want(t, "holder while it waits", leases.now().Annotations[annotationHolder], "a")
		_ = p.stop()
		p.stop = nil
		want(t, "holder after the end", leases.now().Annotations[annotationHolder], "")
	})
}

// The pods cannot be listed for a while: nothing is done before it is known which
// of them have to be left alone.
func TestAdoptionWaitsForThePods(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		found := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{LabelProvider: "process"}}}
		if _, err := r.api.CoreV1().Nodes().Create(t.Context(), found, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var failing atomic.Bool
		failing.Store(true)
		config := identified("a")
		config.Provider, config.Adopt = "mock", true
		config.Pods = func(context.Context) ([]corev1.Pod, error) {
			if failing.Load() {
				return nil, errors.New("the API server is overloaded")
			}
			return nil, nil
		}
		p := newProcess(t, r, &versionedLeases{}, config)
		p.node.Labels = map[string]string{LabelProvider: "mock"}
		r.api.Written()
		p.begin()
		pass(time.Minute)
		want(t, "acts", p.acts(), false)
		wantList(t, "writes", r.api.Written())
		failing.Store(false)
		pass(15 * time.Second)
		want(t, "acts", p.acts(), true)
	})
}
