package podspec

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGracePeriod(t *testing.T) {
	for _, test := range []struct {
		what                  string
		deletion, probe, spec *int64
		failed                bool
		want                  time.Duration
	}{
		{"the default", nil, nil, nil, false, 30 * time.Second},
		{"the pod's", nil, nil, new(int64(7)), false, 7 * time.Second},
		{"the deletion's before the pod's", new(int64(3)), nil, new(int64(7)), false, 3 * time.Second},
		{"deleted by force", new(int64(0)), nil, new(int64(7)), false, 0},
		{"the probe's before the pod's (KEP-2238)", nil, new(int64(5)), new(int64(7)), true, 5 * time.Second},
		{"a probe without one", nil, nil, new(int64(7)), true, 7 * time.Second},
		{"the deletion's before the probe's", new(int64(3)), new(int64(5)), new(int64(7)), true, 3 * time.Second},
		{"negative is one second", nil, nil, new(int64(-1)), false, time.Second},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: test.deletion}}
			pod.Spec.TerminationGracePeriodSeconds = test.spec
			var probe *corev1.Probe
			if test.failed {
				probe = &corev1.Probe{TerminationGracePeriodSeconds: test.probe}
			}
			if got := GracePeriod(pod, probe); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
