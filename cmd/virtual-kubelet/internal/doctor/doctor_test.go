package doctor

import (
	"bytes"
	"context"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// What each check finds in a cluster is in test/integration; here is what no cluster is
// needed for.

func TestACheckIsNotRunForOneThatItNeeds(t *testing.T) {
	run := func(finding Finding) func(context.Context, *examination) Finding {
		return func(context.Context, *examination) Finding { return finding }
	}
	checks := []check{
		{"a", nil, run(failed("do", "broken"))},
		{"b", []string{"a"}, run(ok("fine"))},
		{"c", []string{"b"}, run(ok("fine"))},
		{"d", nil, run(warning("", "odd"))},
		{"e", []string{"d"}, run(ok("fine"))},
	}
	results, causes := (&examination{}).run(t.Context(), checks, nil)
	ofNode, _ := (&examination{node: Node{Name: "vk"}}).run(t.Context(), []check{{"f", []string{"c"}, run(ok("fine"))}}, causes)
	var text bytes.Buffer
	if err := WriteText(&text, append(results, ofNode...)); err != nil {
		t.Fatal(err)
	}
	const want = `failed       a  broken
                fix: do
not checked  b  because a failed
not checked  c  because a failed
warning      d  odd
ok           e  fine

Node vk
not checked  f  because a failed
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if names := FailedChecks(append(results, Result{Check: "g", Node: "vk", Finding: failed("", "x")})); strings.Join(names, ", ") != "a, g of vk" {
		t.Errorf("failed: %q", names)
	}
}

// A program that renews the lease, and is no process of this one's: nothing on a control
// plane would keep it that way, since a node takes its lease back.
func TestHolderIsAnotherProgram(t *testing.T) {
	for name, c := range map[string]struct {
		spec   coordinationv1.LeaseSpec
		status Status
	}{
		"another name": {coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other")}, Failed},
		"no process":   {coordinationv1.LeaseSpec{HolderIdentity: ptr.To("vk")}, Warning},
	} {
		client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "vk"}, Spec: c.spec})
		e := &examination{client: client, node: Node{Name: "vk"}}
		if found := checkHolder(t.Context(), e); found.Status != c.status {
			t.Errorf("%s: %+v, want %s", name, found, c.status)
		}
	}
}
