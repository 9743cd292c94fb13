package podlifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of a pod that rests no form is kept in memory but the cache's, regardless of what it went
// through.
func TestOneFormOfAPodIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		for what, change := range map[string]func(*corev1.Pod){
			"nothing": func(*corev1.Pod) {},
			"a label": func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") },
			"another's finding": func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "Gate"})
			},
		} {
			r.api.ChangePod("web", change)
			pass(repairDelay)
			cached, err := r.pc.cfg.Pods.Get("default", "web")
			if err != nil {
				t.Fatal(err)
			}
			kept := r.record("web")
			for name, form := range map[string]*corev1.Pod{"pod": kept.pod, "last applied": kept.lastApplied, "stored": kept.stored} {
				if form != cached {
					t.Errorf("%s: %s is version %s, not that of the cache, %s", what, name, form.ResourceVersion, cached.ResourceVersion)
				}
			}
		}
	})
}
