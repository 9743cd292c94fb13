package node

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// removePod removes a pod from the API whose end was asked for and has come.
func (pc *PodController) removePod(ctx context.Context, key string) (err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil // made by keyOf: cannot happen, and a retry would not help
	}
	r := pc.records.get(key)
	if r == nil {
		return nil
	}
	pod, err := pc.podInAPI(ctx, namespace, name)
	if err != nil || pod == nil {
		return err
	}
	// Things may have moved on since the key was added.
	if v := pc.view(r, pod); v.heldUID != v.uid || decide(v).verb != doRemove {
		pc.syncs.Add(key)
		return nil
	}
	if len(pod.Finalizers) > 0 && !isTerminal(pod.Status.Phase) {
		// It stays for those who hold it, a Job's controller say, and they go by
		// how it ended. When the API has that, the change leads back here.
		r.mu.Lock()
		report := r.report
		r.mu.Unlock()
		pc.say(key, r, killed(pod, report, time.Now()))
		return nil
	}
	ctx, span := startPodSpan(r.follows(ctx), "removePod", pc.removals, key, pod)
	defer span.End()
	defer func() { span.SetStatus(err) }()

	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = pc.client.Pods(namespace).Delete(ctx, name, *options)
	if err != nil && !errdefs.IsOnlyNotFound(err) {
		// A conflict too: if another pod has the name by now the watch will tell,
		// and the next try sees it; if not, it was no word on this one's end.
		return fmt.Errorf("cannot remove pod %s from the API: %w", key, err)
	}
	r.mu.Lock()
	if r.uid() == pod.UID {
		r.removed = true
	}
	r.mu.Unlock()
	log.G(ctx).Info("Removed pod from the API")
	return nil
}
