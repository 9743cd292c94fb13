package podengine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRecursiveReadOnlyMounts(t *testing.T) {
	withMount := func(mode corev1.RecursiveReadOnlyMode) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &mode}, {Name: "v", MountPath: "/w"},
			}
		}
	}
	able := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	for name, c := range map[string]struct {
		mode     corev1.RecursiveReadOnlyMode
		features *runtimeapi.RuntimeHandlerFeatures
		want     corev1.RecursiveReadOnlyMode // empty: it does not run
	}{
		"enabled":                     {corev1.RecursiveReadOnlyEnabled, able, corev1.RecursiveReadOnlyEnabled},
		"enabled, not supported":      {corev1.RecursiveReadOnlyEnabled, &runtimeapi.RuntimeHandlerFeatures{}, ""},
		"enabled, the runtime is old": {corev1.RecursiveReadOnlyEnabled, nil, ""},
		"if possible":                 {corev1.RecursiveReadOnlyIfPossible, able, corev1.RecursiveReadOnlyEnabled},
		"if possible, not supported":  {corev1.RecursiveReadOnlyIfPossible, nil, corev1.RecursiveReadOnlyDisabled},
		"disabled":                    {corev1.RecursiveReadOnlyDisabled, able, corev1.RecursiveReadOnlyDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) { r.runtime.features = c.features }, func(r *rig) {
				pod := makePod("a", withMount(c.mode))
				r.create(pod)
				if c.want == "" {
					r.after(time.Minute)
					r.wantState(pod, "Pending a=CreateContainerConfigError")
					const says = `Warning Failed {a}: Error: volume "v" requested recursive read-only mode, but it is not supported by the runtime`
					if n := r.events.count(says); n != 1 {
						t.Errorf("events are %v", r.events.drain())
					}
					return
				}
				mounts := r.status(pod).ContainerStatuses[0].VolumeMounts
				if len(mounts) != 2 || *mounts[0].RecursiveReadOnly != c.want || mounts[1].RecursiveReadOnly != nil {
					t.Errorf("mounts are %+v, want the first %s", mounts, c.want)
				}
				if got := r.runtime.newest("a").config.Mounts[0].RecursiveReadOnly; got != (c.want == corev1.RecursiveReadOnlyEnabled) {
					t.Errorf("the runtime was asked for %v", got)
				}
			})
		})
	}
}
