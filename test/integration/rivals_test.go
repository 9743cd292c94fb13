//go:build integration

package integration

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// waitRival waits until a process says that another one acts for its node.
func waitRival(t *testing.T, n *virtualNode) {
	t.Helper()
	eventually(t, "the process waits, and warns", func(context.Context) (bool, string) {
		return strings.Contains(n.log.String(), "Another process acts for this node"), n.log.String()
	})
}

// acts reports whether a process has begun to act for its node.
func acts(n *virtualNode) bool { return strings.Contains(n.log.String(), "Starting node") }

// Of two processes with one node name, which were started independently, the second
// does nothing but warn until the first has ended: by itself, or as it stands still for
// longer than its lease lasts. When it goes on then it does nothing but end.
func TestTwoProcessesOfOneNode(t *testing.T) {
	t.Parallel() // they wait most of the time
	s := newSharers(t, 0)
	ns := newNamespace(t)
	nodes := []string{s.name}
	first := s.start()
	(&virtualNode{name: s.name}).waitReady(t, time.Now())
	second := s.start()
	waitRival(t, second)
	unready := watchReady(t, s.name)
	defer unready()
	allRun(t, ns, "before", nodes)
	before := podsOf(t, ns)
	if acts(second) {
		t.Error("the second process acts beside the first")
	}

	first.stop(t, syscall.SIGTERM)
	allRun(t, ns, "after-the-end", nodes)
	s.assertUntouched(before, ns)
	for _, seen := range unready() {
		t.Errorf("the node was not Ready: %s", seen)
	}

	third := s.start()
	waitRival(t, third)
	if err := second.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third process acts", func(context.Context) (bool, string) { return acts(third), third.log.String() })
	allRun(t, ns, "after-the-stall", nodes)
	if err := second.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.process.Done():
		if err := second.process.Err(); err == nil || !strings.Contains(second.log.String(), "another process has taken the node") {
			t.Errorf("the process that stood still has ended with %v, want that it has lost the node", err)
		}
	case <-time.After(patience):
		t.Fatal("the process that stood still acts beside the other")
	}
	allRun(t, ns, "in-the-end", nodes)
	for name, was := range before {
		if is := podsOf(t, ns)[name]; is.UID != was.UID || is.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s, and was to run on", name, is.Status.Phase)
		}
	}
	s.assertCreatedOnce(ns)
	third.stop(t, syscall.SIGTERM)
}
