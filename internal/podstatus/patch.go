package podstatus

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Patch returns the strategic merge patch that makes the status of the pod with
// the given UID, so far was, the same as is. It is nil if they are equal.
func Patch(uid types.UID, was, is *corev1.PodStatus) ([]byte, error) {
	if !otherStatusFields.same(was, is) || !mergeable(was) || !mergeable(is) {
		return genericPatch(uid, was, is)
	}
	d := diff{buf: make([]byte, 0, 2048)}
	d.open('{')
	d.key("metadata")
	d.open('{')
	d.text("uid", "", string(uid))
	d.close('}')
	d.key("status")
	d.open('{')
	empty := len(d.buf)
	d.status(was, is)
	if d.err != nil {
		return nil, fmt.Errorf("cannot encode the new status: %w", d.err)
	}
	if len(d.buf) == empty {
		return nil, nil
	}
	d.close('}')
	d.close('}')
	return d.buf, nil
}

// status writes the fields that differ.
func (d *diff) status(was, is *corev1.PodStatus) {
	d.number("observedGeneration", was.ObservedGeneration, is.ObservedGeneration)
	d.text("phase", string(was.Phase), string(is.Phase))
	conditions.write(d, was.Conditions, is.Conditions)
	d.text("message", was.Message, is.Message)
	d.text("reason", was.Reason, is.Reason)
	d.text("nominatedNodeName", was.NominatedNodeName, is.NominatedNodeName)
	d.text("hostIP", was.HostIP, is.HostIP)
	hostIPs.write(d, was.HostIPs, is.HostIPs)
	d.text("podIP", was.PodIP, is.PodIP)
	podIPs.write(d, was.PodIPs, is.PodIPs)
	d.time("startTime", timeOf(was.StartTime), timeOf(is.StartTime))
	d.containers("initContainerStatuses", was.InitContainerStatuses, is.InitContainerStatuses)
	d.containers("containerStatuses", was.ContainerStatuses, is.ContainerStatuses)
	d.text("qosClass", string(was.QOSClass), string(is.QOSClass))
	d.containers("ephemeralContainerStatuses", was.EphemeralContainerStatuses, is.EphemeralContainerStatuses)
	d.text("resize", string(was.Resize), string(is.Resize))
}

// containers writes a list of containers, which the API server does not merge.
func (d *diff) containers(name string, was, is []corev1.ContainerStatus) {
	if sameLists(was, is, sameContainers) {
		return
	}
	d.key(name)
	if len(is) == 0 {
		d.null()
		return
	}
	d.value(is)
}

// genericPatch is Patch for statuses with fields that are rarely set.
func genericPatch(uid types.UID, was, is *corev1.PodStatus) ([]byte, error) {
	if Equal(was, is) {
		return nil, nil
	}
	before, err := json.Marshal(corev1.Pod{Status: *was})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the present status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *is})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the new status: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
