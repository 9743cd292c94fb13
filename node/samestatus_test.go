package node

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A difference in any field of a node's status is one, also in those that the API gets one day, but for the
// times of conditions, and for how amounts are written.
func TestSameNodeStatus(t *testing.T) {
	yes, bytes := true, int64(1)
	full := corev1.NodeStatus{
		Capacity:         corev1.ResourceList{"cpu": resource.MustParse("4")},
		Allocatable:      corev1.ResourceList{"cpu": resource.MustParse("4")},
		Phase:            corev1.NodeRunning,
		Conditions:       []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "a", Message: "b"}},
		Addresses:        []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		DaemonEndpoints:  corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo:         corev1.NodeSystemInfo{MachineID: "m", Swap: &corev1.NodeSwapStatus{Capacity: &bytes}},
		Images:           []corev1.ContainerImage{{Names: []string{"a"}}},
		VolumesInUse:     []corev1.UniqueVolumeName{"v"},
		VolumesAttached:  []corev1.AttachedVolume{{Name: "v"}},
		Config:           &corev1.NodeConfigStatus{Error: "e"},
		RuntimeHandlers:  []corev1.NodeRuntimeHandler{{Name: "h"}},
		Features:         &corev1.NodeFeatures{SupplementalGroupsPolicy: &yes},
		DeclaredFeatures: []string{"f"},
	}
	if later := full.DeepCopy(); !sameNodeStatus(&full, later) {
		t.Error("a copy differs")
	}
	later := full.DeepCopy()
	later.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(1, 0))
	later.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	later.Capacity["cpu"] = resource.MustParse("4000m")
	if !sameNodeStatus(&full, later) {
		t.Error("one with other times of its conditions, and 4000m for 4, differs")
	}

	for i := range reflect.TypeFor[corev1.NodeStatus]().NumField() {
		name := reflect.TypeFor[corev1.NodeStatus]().Field(i).Name
		other := full.DeepCopy()
		if field := reflect.ValueOf(other).Elem().Field(i); field.IsZero() {
			t.Errorf("%s: the test has nothing of it", name)
		} else {
			field.SetZero()
		}
		if sameNodeStatus(&full, other) {
			t.Errorf("%s: a status without it is the same", name)
		}
	}
	for i := range reflect.TypeFor[corev1.NodeCondition]().NumField() {
		field := reflect.TypeFor[corev1.NodeCondition]().Field(i)
		if field.Type == reflect.TypeFor[metav1.Time]() {
			continue
		}
		other := full.DeepCopy()
		reflect.ValueOf(&other.Conditions[0]).Elem().Field(i).SetZero()
		if sameNodeStatus(&full, other) {
			t.Errorf("%s: a condition without it is the same", field.Name)
		}
	}
}
