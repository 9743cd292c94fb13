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
		if !EqualReports(shared, status) {
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
	if reported.QOSClass = inAPI.QOSClass; Share(reported, inAPI) != inAPI {
		t.Error("a status that is the API's is kept twice")
	}
}

// The API has first the condition that the scheduler has set, a provider wherever it has it.
func TestReportsAreTheSameInAnyOrder(t *testing.T) {
	list := func(kinds ...corev1.PodConditionType) *corev1.PodStatus {
		s := &corev1.PodStatus{}
		for _, kind := range kinds {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind})
		}
		return s
	}
	changed := list("a", "b")
	changed.Conditions[0].Message = "x"
	for name, tc := range map[string]struct {
		a, b *corev1.PodStatus
		same bool
	}{
		"same order":    {list("a", "b"), list("a", "b"), true},
		"another order": {list("a", "b"), list("b", "a"), true},
		"another type":  {list("a", "b"), list("b", "c"), false},
		"another value": {changed, list("b", "a"), false},
		"one more":      {list("a", "b"), list("b", "a", "c"), false},
		"one twice":     {list("a", "a"), list("a", "b"), false},
		"other twice":   {list("a", "b"), list("b", "b"), false},
		"twice in both": {list("a", "a", "b"), list("a", "b", "a"), false},
		"none and nil":  {list(), nil, false},
	} {
		if EqualReports(tc.a, tc.b) != tc.same || EqualReports(tc.b, tc.a) != tc.same {
			t.Errorf("%s: they are the same: %v", name, !tc.same)
		}
		if tc.b == nil {
			continue
		}
		if shares := len(tc.a.Conditions) > 0 && &Share(tc.a, tc.b).Conditions[0] == &tc.b.Conditions[0]; shares != tc.same {
			t.Errorf("%s: conditions are shared: %v", name, shares)
		}
	}
}
