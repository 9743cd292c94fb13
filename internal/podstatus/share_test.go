package podstatus

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is shared is the same to the API, and neither status is changed.
func TestSharedStatusIsTheSame(t *testing.T) {
	for seed := range uint64(500) {
		r := newRandom(seed)
		like := r.status()
		status := r.change(like)
		statusBefore, likeBefore := status.DeepCopy(), like.DeepCopy()
		shared := Share(status, like)
		if !Equal(shared, status) {
			t.Fatalf("seed %d: shared\n%s\nwas\n%s", seed, encode(t, shared), encode(t, status))
		}
		if !reflect.DeepEqual(status, statusBefore) || !reflect.DeepEqual(like, likeBefore) {
			t.Fatalf("seed %d: a status was changed", seed)
		}
	}
}

// The API has whole seconds of the times that a provider reports.
func TestStatusSharesWhatTheAPIHas(t *testing.T) {
	status := func(nanoseconds int64) *corev1.PodStatus {
		at := metav1.Unix(1_800_000_000, nanoseconds)
		return &corev1.PodStatus{
			PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}, StartTime: &at,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}},
		}
	}
	reported, inAPI := status(5), status(0)
	inAPI.QOSClass, inAPI.Conditions = corev1.PodQOSBestEffort, append(inAPI.Conditions, corev1.PodCondition{})[:1]
	shared := Share(reported, inAPI)
	if shared.QOSClass != "" || shared.StartTime != inAPI.StartTime || &shared.PodIPs[0] != &inAPI.PodIPs[0] || &shared.HostIPs[0] != &inAPI.HostIPs[0] ||
		&shared.Conditions[0] != &inAPI.Conditions[0] || &shared.ContainerStatuses[0] != &inAPI.ContainerStatuses[0] {
		t.Errorf("%+v\nshares too little with\n%+v", shared, inAPI)
	}
	if cap(shared.Conditions) != 1 {
		t.Error("there is room to append to the API's conditions")
	}
}
