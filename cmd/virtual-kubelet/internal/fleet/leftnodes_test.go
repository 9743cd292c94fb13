package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// deleted reports whether there was a request to delete the Node.
func (r *poolsRig) deleted(name string) bool {
	for _, action := range r.client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteAction); ok && action.Matches("delete", "nodes") && deletion.GetName() == name {
			return true
		}
	}
	return false
}

// leave has a Node in the API as a process with a file of that name leaves it.
func (r *poolsRig) leave(name, file, reason string, status corev1.ConditionStatus) *corev1.Node {
	r.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if file != "" {
		owned, err := json.Marshal(map[string][]string{"labels": {"type", nodepools.Label}})
		if err != nil {
			r.t.Fatal(err)
		}
		n.Labels = map[string]string{nodepools.Label: file}
		n.Annotations = map[string]string{"virtual-kubelet.io/owned": string(owned)}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}
	n, err := r.client.CoreV1().Nodes().Create(r.t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *poolsRig) setReady(n *corev1.Node, reason string, status corev1.ConditionStatus) {
	r.t.Helper()
	n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = status, reason
	if _, err := r.client.CoreV1().Nodes().UpdateStatus(r.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *poolsRig) wantNodes(what string, want ...string) {
	r.t.Helper()
	nodes := r.nodes()
	for _, name := range want {
		if _, ok := nodes[name]; !ok {
			r.t.Errorf("%s: Node %s is not there", what, name)
		}
	}
	if len(nodes) != len(want) {
		r.t.Errorf("%s: there are %d Nodes, want %v", what, len(nodes), want)
	}
}

// Nodes that went from the file while no process ran are deleted, and nothing else.
func TestNodesThatWentWhileNobodyRan(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		r.leave("a-1", "edge", "KubeletStopped", corev1.ConditionFalse)
		r.leave("killed", "edge", "NodeStatusUnknown", corev1.ConditionUnknown)
		r.leave("other-file", "core", "KubeletStopped", corev1.ConditionFalse)
		r.leave("no-file", "", "KubeletStopped", corev1.ConditionFalse)
		byHand := r.leave("by-hand", "edge", "NodeStatusUnknown", corev1.ConditionUnknown)
		byHand.Annotations = nil
		if _, err := r.client.CoreV1().Nodes().Update(t.Context(), byHand, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		r.write(`{name: edge, pools: [{name: a, count: 1}]}`)
		r.passStopped()
		r.wantNodes("without deleteNodes", "a-0", "a-1", "killed", "other-file", "no-file", "by-hand")
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`)
		r.pass()
		r.wantNodes("within the minute", "a-0", "a-1", "killed", "other-file", "no-file", "by-hand")
		r.passStopped()
		r.wantNodes("later", "a-0", "other-file", "no-file", "by-hand")
		r.wantErrors("all of it")

		r.client.ClearActions()
		time.Sleep(10 * retryInterval)
		for _, action := range r.client.Actions() {
			if action.Matches("list", "nodes") {
				t.Fatal("it goes on looking although nothing is left")
			}
		}
	})
}

// A process deletes Nodes that are left also when it starts, and not only when the file
// changes.
func TestNodesThatWentBeforeTheStart(t *testing.T) {
	before := func(r *poolsRig) { r.leave("a-1", "edge", "KubeletStopped", corev1.ConditionFalse) }
	poolsBubbleAfter(t, before, `{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		r.wantNodes("within the minute", "a-0", "a-1")
		r.passStopped()
		r.wantNodes("after the start", "a-0")
	})
}

// Each shard deletes what is left of its own nodes, so that those that another
// process has are not compared with this one's file.
func TestNodesThatWentWhileNobodyHadTheirShard(t *testing.T) {
	poolsBubble(t, `{pools: []}`, func(r *poolsRig) {
		f, end := r.shared(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`, 2)
		defer end()
		names := []string{"a-1", "a-2"}
		for _, name := range names {
			r.leave(name, "edge", "KubeletStopped", corev1.ConditionFalse)
		}
		stop := r.serve(f, shardOf("a-1", 2))
		r.passStopped()
		if nodes := r.nodes(); len(nodes) == 0 || nodes["a-2"].Name == "" || nodes["a-1"].Name != "" {
			t.Errorf("one of two shards has left the Nodes %v", nodes)
		}
		other := r.serve(f, shardOf("a-2", 2))
		r.passStopped()
		r.wantNodes("with both shards", "a-0")
		stop(context.Canceled)
		other(context.Canceled)
	})
}

// What somebody keeps alive stays, with any labels: another process of a file
// with the same name by mistake, or a kubelet whose name was in the file.
func TestNodesThatSomebodyKeeps(t *testing.T) {
	poolsBubble(t, `{name: edge, deleteNodes: true, pools: [{name: a, count: 1}]}`, func(r *poolsRig) {
		ready := r.leave("ready", "edge", "KubeletReady", corev1.ConditionTrue)
		r.leave("ill", "edge", "ProviderNotReady", corev1.ConditionFalse)
		back := r.leave("back", "edge", "KubeletStopped", corev1.ConditionFalse)
		r.write(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1, labels: {tier: front}}]}`)
		r.pass()
		r.setReady(back, "KubeletReady", corev1.ConditionTrue)
		r.passStopped()
		r.wantNodes("kept", "a-0", "ready", "ill", "back")
		r.wantErrors("a process that was killed looks like that, too")
		time.Sleep(keptTime)
		r.wantErrors("in the end", "another process keeps 3 Nodes")
		// Its process is only restarted.
		r.setReady(ready, "KubeletStopped", corev1.ConditionFalse)
		time.Sleep(5 * stoppedTime)
		r.wantNodes("once seen to be somebody's", "a-0", "ready", "ill", "back")
		r.wantErrors("logged once")
		r.write(`{name: of-its-own, deleteNodes: true, pools: [{name: a, count: 1}]}`)
		r.passStopped()
		r.wantNodes("under another name", "a-0", "ready", "ill", "back")
		r.wantErrors("under another name")
	})
}

// A Node is deleted as it was seen, or not at all.
func TestNodeThatIsWrittenMeanwhile(t *testing.T) {
	poolsBubble(t, `{name: edge, deleteNodes: true, pools: []}`, func(r *poolsRig) {
		var asked []metav1.DeleteOptions
		fakeapi.React(&r.client.Fake, "delete", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			asked = append(asked, action.(clienttesting.DeleteActionImpl).DeleteOptions)
			return len(asked) == 1, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a-0", nil)
		})
		r.leave("a-0", "edge", "KubeletStopped", corev1.ConditionFalse)
		n := r.nodes()["a-0"]
		n.UID, n.ResourceVersion = "one", "7"
		if _, err := r.client.CoreV1().Nodes().Update(t.Context(), &n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.write(`{name: edge, deleteNodes: true, pools: [{name: b, count: 0}]}`)
		r.passStopped()
		r.passStopped()
		r.wantNodes("in the end")
		r.wantErrors("a conflict is no error")
		if len(asked) != 2 {
			t.Fatalf("asked %d times", len(asked))
		}
		for _, options := range asked {
			if p := options.Preconditions; p == nil || *p.UID != "one" || *p.ResourceVersion != "7" {
				t.Errorf("asked to delete with %+v", p)
			}
		}
	})
}

// What a node has left in the provider is not touched while it is gone, and ends when
// it comes back and the control plane has deleted its pods meanwhile.
func TestPodsOfNodesThatAreGone(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	file := fmt.Sprintf(`{name: edge, deleteNodes: true, pools: [{name: a, count: 1, providerConfig: {a-0: {journal: %q}}}]}`, journal)
	done := func() string {
		content, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(regexp.MustCompile(`"event":"\w+"`).FindAllString(string(content), -1))
	}
	poolsBubble(t, file, func(r *poolsRig) {
		pods := r.client.CoreV1().Pods("default")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "a-0", Containers: []corev1.Container{{Name: "c"}}}}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass()
		const created = `["event":"create"]`
		if got := done(); got != created {
			t.Fatalf("the provider did %s", got)
		}
		r.write(`{name: edge, deleteNodes: true, pools: []}`)
		r.passStopped()
		r.wantNodes("with the node gone")
		if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if got := done(); got != created {
			t.Errorf("without the node the provider did %s", got)
		}
		r.write(file)
		time.Sleep(10 * time.Minute)
		r.pass()
		if got := done(); got != `["event":"create" "event":"delete" "event":"terminal" "event":"forget"]` {
			t.Errorf("with the node back the provider did %s", got)
		}
	})
}
