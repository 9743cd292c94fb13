package node

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// restrict has the API treat the process as the node itself, as the
// NodeRestriction admission does; it returns a
// function that counts the refusals.
func (r *nodeRig) restrict() (refusals func() int) {
	refused := 0
	refuse := func(why string) (bool, runtime.Object, error) {
		refused++
		return true, nil, apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "vk", errors.New(why))
	}
	fakeapi.React(&r.api.Fake, "*", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var changed corev1.Node
		var fields map[string]map[string]any
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			changed.Labels = action.GetObject().(*corev1.Node).Labels
		case clienttesting.PatchActionImpl:
			if action.GetSubresource() != "" {
				return false, nil, nil
			}
			if err := json.Unmarshal(action.GetPatch(), &fields); err != nil {
				r.t.Error(err)
			}
			labels, _ := fields["metadata"]["labels"].(map[string]any)
			changed.Labels = map[string]string{}
			for key := range labels {
				changed.Labels[key] = ""
			}
		}
		for key := range changed.Labels {
			if strings.HasPrefix(key, "kubernetes.io/role") || strings.HasPrefix(key, "node-restriction.") {
				return refuse("is not allowed to modify labels: " + key)
			}
		}
		if _, touched := fields["spec"]["taints"]; touched {
			return refuse(`node "vk" is not allowed to modify taints`)
		}
		return false, nil, nil
	})
	return func() int { return refused }
}

func TestReservedLabels(t *testing.T) {
	for key, reserved := range map[string]bool{
		"type":                                          false,
		"example.org/a":                                 false,
		"notkubernetes.io/role":                         false,
		"virtual-kubelet.io/provider":                   false,
		"kubernetes.io/hostname":                        false,
		"kubernetes.io/os":                              false,
		"kubernetes.io/arch":                            false,
		"beta.kubernetes.io/os":                         false,
		"topology.kubernetes.io/zone":                   false,
		"failure-domain.beta.kubernetes.io/zone":        false,
		"node.kubernetes.io/instance-type":              false,
		"node.kubernetes.io/anything":                   false,
		"my.node.kubernetes.io/anything":                false,
		"kubelet.kubernetes.io/anything":                false,
		"kubernetes.io/role":                            true,
		"node-role.kubernetes.io/agent":                 true,
		"node-restriction.kubernetes.io/a":              true,
		"my.node-restriction.kubernetes.io/a":           true,
		"topology.kubernetes.io/rack":                   true,
		"cluster.x-k8s.io/name":                         false,
		"cluster.k8s.io/name":                           true,
		"k8s.io/a":                                      true,
		"node.kubernetes.io.example.org/not-an-address": false,
	} {
		if got := reservedLabel(key); got != reserved {
			t.Errorf("%s: reserved is %v, want %v", key, got, reserved)
		}
	}
}

// With its own identity a node registers without the labels that it may not
// have, and with all others.
func TestRegistrationAsTheNodeItself(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		refusals := r.restrict()
		r.node.Labels = map[string]string{"type": "virtual-kubelet", "kubernetes.io/role": "agent", "kubernetes.io/os": "linux"}
		r.start(r.withLease())
		node := r.api.Node("vk")
		want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet", "kubernetes.io/os": "linux"})
		want(t, "taints", len(node.Spec.Taints), 1)
		want(t, "refusals", refusals(), 1)

		// Other changes must not suffer from the refusal.
		changed := &corev1.Node{}
		changed.Labels = map[string]string{"zone": "a", "kubernetes.io/role": "worker"}
		changed.Annotations = map[string]string{"note": "b"}
		r.notify(changed)
		synctest.Wait()
		node = r.api.Node("vk")
		want(t, "labels", node.Labels, map[string]string{"type": "virtual-kubelet", "kubernetes.io/os": "linux", "zone": "a"})
		want(t, "annotation", node.Annotations["note"], "b")
		pass(time.Hour)
		r.wantReady("True")
		want(t, "refusals after an hour", refusals(), 1)

		// A deleted node comes back the same.
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		want(t, "labels", r.api.Node("vk").Labels, node.Labels)
		want(t, "taints", len(r.api.Node("vk").Spec.Taints), 1)
		want(t, "refusals", refusals(), 1)
	})
}

// A node that was registered by a service account has labels and taints that it
// may not change itself: they stay, and the rest is still written.
func TestTakenOverAsTheNodeItself(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.node.Labels = map[string]string{"type": "virtual-kubelet", "kubernetes.io/role": "agent", "node-restriction.kubernetes.io/a": "b"}
		r.start(r.withLease())
		r.end()

		refusals := r.restrict()
		r.node.Labels = map[string]string{"type": "other", "kubernetes.io/role": "worker"}
		r.node.Spec.Taints = []corev1.Taint{{Key: "another", Effect: corev1.TaintEffectNoSchedule}}
		r.start(r.withLease())
		node := r.api.Node("vk")
		want(t, "labels", node.Labels, map[string]string{"type": "other", "kubernetes.io/role": "agent", "node-restriction.kubernetes.io/a": "b"})
		want(t, "taint", node.Spec.Taints[0].Key, "virtual")
		pass(time.Hour)
		r.wantReady("True")
		want(t, "refusals", refusals(), 1)
	})
}

// Where nothing but what is refused is to be written, it is asked for once.
func TestRestartedAsTheNodeItself(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		refusals := r.restrict()
		r.node.Labels["kubernetes.io/role"] = "agent"
		r.start(r.withLease())
		pass(time.Hour)
		r.end()
		r.start(r.withLease())
		pass(time.Hour)
		r.wantReady("True")
		want(t, "refusals", refusals(), 2)
	})
}

// A refusal that has another cause is the error that is returned.
func TestRefusalOfAllLabels(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.node.Labels["kubernetes.io/role"] = "agent"
		r.api.Fail("create nodes", apierrors.NewForbidden(fakeapi.Nodes.GroupResource(), "vk", errors.New("no")))
		r.launch(r.withLease())
		<-r.nc.Done()
		err := r.stop()
		r.stop = nil
		if !apierrors.IsForbidden(err) {
			t.Errorf("Run returned %v, want the refusal", err)
		}
	})
}
