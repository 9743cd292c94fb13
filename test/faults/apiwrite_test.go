package faults

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

func (s *apiServer) replace(kind *kindOfObject, c *call) (runtime.Object, error) {
	before := kind.objects[c.name]
	if before == nil {
		return nil, notFound(c)
	}
	after := kind.make()
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), c.body, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.update(kind, c, before, after)
}

func (s *apiServer) patch(kind *kindOfObject, c *call) (runtime.Object, error) {
	before := kind.objects[c.name]
	if before == nil {
		return nil, notFound(c)
	}
	current, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(current, c.body, kind.make())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after := kind.make()
	if err := json.Unmarshal(patched, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.update(kind, c, before, after)
}

func (s *apiServer) update(kind *kindOfObject, c *call, before, after object) (runtime.Object, error) {
	if after.GetUID() != "" && after.GetUID() != before.GetUID() {
		return nil, conflict(c, "Precondition failed: UID in precondition: %s, UID in object meta: %s", after.GetUID(), before.GetUID())
	}
	if v := after.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, conflict(c, "the object has been modified")
	}
	after.SetUID(before.GetUID())
	after.SetNamespace(before.GetNamespace())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	after.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	after.SetGeneration(before.GetGeneration())
	if pod, ok := after.(*corev1.Pod); ok {
		was := before.(*corev1.Pod)
		if c.subresource == "status" {
			status := pod.Status
			*pod = *was.DeepCopy()
			pod.Status = status
		} else {
			pod.Status = was.Status
			if !equality.Semantic.DeepEqual(pod.Spec, was.Spec) {
				pod.Generation++
			}
		}
		if c.agent {
			s.audit.auditPatch(was, pod, c.subresource, c.body)
		}
	}
	if node, ok := after.(*corev1.Node); ok && c.subresource == "" {
		node.Status = before.(*corev1.Node).Status
	}
	after.SetResourceVersion(before.GetResourceVersion())
	if equality.Semantic.DeepEqual(before, after) {
		return before, nil // as the real one: no write, no event
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 && ptr.Deref(after.GetDeletionGracePeriodSeconds(), 0) == 0 {
		s.store(kind, c.resource, after, watch.Deleted)
		return after, nil
	}
	s.store(kind, c.resource, after, watch.Modified)
	return after, nil
}

func (s *apiServer) delete(kind *kindOfObject, c *call) (runtime.Object, error) {
	before := kind.objects[c.name]
	if before == nil {
		return nil, notFound(c)
	}
	options := &metav1.DeleteOptions{}
	if len(c.body) > 0 {
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), c.body, options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != before.GetUID() {
		return nil, conflict(c, "Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, before.GetUID())
	}
	after := before.DeepCopyObject().(object)
	var grace int64
	if pod, ok := after.(*corev1.Pod); ok {
		if c.agent {
			s.audit.auditDelete(pod, options)
		}
		grace = gracePeriod(pod, options)
		if was := pod.DeletionTimestamp; was != nil {
			if grace >= *pod.DeletionGracePeriodSeconds && grace > 0 {
				return before, nil // a deletion can only be made shorter
			}
			began := was.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
			after.SetDeletionTimestamp(&metav1.Time{Time: began.Add(time.Duration(grace) * time.Second)})
		}
	}
	if grace == 0 && len(after.GetFinalizers()) == 0 {
		after.SetDeletionGracePeriodSeconds(&grace)
		s.store(kind, c.resource, after, watch.Deleted)
		return after, nil
	}
	if after.GetDeletionTimestamp() == nil {
		after.SetDeletionTimestamp(&metav1.Time{Time: now().Add(time.Duration(grace)*time.Second - s.behind())})
		after.SetGeneration(after.GetGeneration() + 1)
	}
	after.SetDeletionGracePeriodSeconds(&grace)
	if equality.Semantic.DeepEqual(before, after) {
		return before, nil
	}
	s.store(kind, c.resource, after, watch.Modified)
	return after, nil
}

// gracePeriod is how many seconds the end of a pod may take.
func gracePeriod(pod *corev1.Pod, options *metav1.DeleteOptions) int64 {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	if options.GracePeriodSeconds != nil {
		return *options.GracePeriodSeconds
	}
	return ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
}
