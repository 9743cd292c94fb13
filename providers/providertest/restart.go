package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

// runRestart restarts the node, and checks what was to survive that, and what
// was not.
func (r *runner) runRestart(t *testing.T) {
	scope := r.node.Begin("restart")
	t.Cleanup(func() {
		if err := scope.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	stays, goes := r.createReady(t, scope), r.createReady(t, scope)
	if err := r.stop(); err != nil {
		t.Fatalf("the node did not end well: %v", err)
	}
	if err := scope.Delete(ctx, goes, 0); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	t.Run("deleted-while-down", func(t *testing.T) {
		t.Log("a pod that is deleted with force while the node is down is gone from the provider after it")
		err := r.eventually(t, func(ctx context.Context) error {
			held, err := r.held(ctx)
			if err == nil && slices.Contains(held, goes.Namespace+"/"+goes.Name) {
				err = fmt.Errorf("the provider holds %v", held)
			}
			return err
		})
		if err != nil {
			t.Errorf("waiting until the provider no longer holds pod %s: %v", goes.Name, err)
		}
	})
	t.Run("survives-restart", func(t *testing.T) {
		if !slices.Contains(r.Capabilities, SurvivesRestart) {
			t.Skipf("%s is not declared", SurvivesRestart)
		}
		t.Log("a pod that ran before the node was restarted runs on, in the same containers")
		if err := r.checkSurvived(t, stays); err != nil {
			t.Errorf("%v\n%s", err, scope.Describe(ctx))
		}
	})
	r.runRestarting(t, r.node)
}

func (r *runner) createReady(t *testing.T, scope *nodecheck.Scope) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.Timeout)
	defer cancel()
	pod, err := scope.Create(ctx, scope.Pod(r.node.LongRunning("main")))
	if err == nil {
		pod, err = scope.Follow(ctx, pod, "is ready", nil, nodecheck.Ready)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, scope.Describe(ctx))
	}
	return pod
}

// checkSurvived compares a pod, as the provider, the kubelet and the API have it,
// with what it was.
func (r *runner) checkSurvived(t *testing.T, before *corev1.Pod) error {
	err := r.eventually(t, func(ctx context.Context) error {
		pod, err := r.running.provider.GetPod(ctx, before.Namespace, before.Name)
		if err != nil {
			return fmt.Errorf("the provider: %w", err)
		}
		if pod == nil {
			return errors.New("the provider does not know it")
		}
		return nodecheck.SameContainers(before, pod)
	})
	if err != nil {
		return err
	}
	// What is started again of the pod, it is in what a new pod has waited for.
	scope := r.node.Begin("after-restart")
	r.createReady(t, scope)
	if err := scope.End(context.Background()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), r.Timeout)
	defer cancel()
	if err := r.node.WaitHeld(ctx, before, true); err != nil {
		return err
	}
	_, err = scope.Follow(ctx, before, "is what it was, and is ready", nil, func(pod *corev1.Pod, deleted bool) (bool, error) {
		if err := nodecheck.SameContainers(before, pod); err != nil {
			return false, err
		}
		return nodecheck.Ready(pod, deleted)
	})
	if err != nil {
		return err
	}
	_, err = scope.Follow(ctx, before, "is gone once it is deleted", func(ctx context.Context) error { return scope.Delete(ctx, before, 10) }, nodecheck.Gone)
	return err
}

// held are the namespaces and names of the provider's pods.
func (r *runner) held(ctx context.Context) ([]string, error) {
	pods, err := r.running.provider.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Namespace + "/" + pod.Name
	}
	return names, nil
}

func (r *runner) eventually(t *testing.T, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), r.Timeout)
	defer cancel()
	return r.node.Poll(ctx, check)
}

// checkNothingLeft is made when all checks have removed their pods.
func (r *runner) checkNothingLeft(t *testing.T) {
	if r.running == nil {
		t.Skip("the node was not started again")
	}
	err := r.eventually(t, func(ctx context.Context) error {
		held, err := r.held(ctx)
		if err == nil && len(held) > 0 {
			err = fmt.Errorf("the provider holds %v", held)
		}
		return err
	})
	if err != nil {
		t.Errorf("waiting until the provider holds no pod: %v", err)
	}
}
