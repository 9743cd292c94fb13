package podlifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const gate corev1.PodConditionType = "example.com/gate"

func gateIs(status corev1.ConditionStatus, message string, at time.Time) corev1.PodCondition {
	c := corev1.PodCondition{Type: gate, Status: status, Message: message}
	if !at.IsZero() {
		c.LastTransitionTime = metav1.NewTime(at)
	}
	return c
}

// Invariant 7: a provider that reports the pod it was given, with the conditions of
// others on it, does not take back what they have written since.
func TestConditionsOfOthersAreNotCopiedBack(t *testing.T) {
	for name, at := range map[string]func() time.Time{
		"with times":    time.Now,
		"without times": func() time.Time { return time.Time{} },
	} {
		for kind, restarts := range map[string]bool{"": false, ", across a restart": true} {
			if restarts && name == "without times" {
				continue // then it is not known which is older
			}
			t.Run(name+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.handler = r.provider.Polled()
					r.start()
					given := gateIs(corev1.ConditionFalse, "not yet", at())
					r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{given} }))
					copied := func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{given} }
					r.provider.ChangePod("web", copied)
					pass(10 * time.Second)
					set := func(conditions ...corev1.PodCondition) {
						r.api.ChangePod("web", func(p *corev1.Pod) { p.Status.Conditions = conditions })
					}
					is := func(what string, wanted ...string) {
						t.Helper()
						var got []string
						for _, c := range r.api.Pod("web").Status.Conditions {
							if c.Type == gate {
								got = append(got, string(c.Status)+" "+c.Message)
							}
						}
						wantList(t, what, got, wanted...)
					}
					set(gateIs(corev1.ConditionTrue, "open", at()))
					if restarts {
						r.end()
						r.start()
					}
					r.provider.ChangePod("web", func(p *corev1.Pod) { copied(p); p.Status.Message = "news" })
					pass(time.Minute)
					is("when it was changed", "True open")
					if !restarts {
						set()
						r.provider.ChangePod("web", func(p *corev1.Pod) { copied(p); p.Status.Message = "more news" })
						pass(time.Minute)
						is("when it was removed")
					}
				})
			})
		}
	}
}

// What the provider changes itself is written, also if somebody else wrote it first, and repaired
// from then on.
func TestConditionsThatTheProviderChanges(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		given := gateIs(corev1.ConditionFalse, "", time.Now())
		r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{given} }))
		pass(time.Minute)
		is := func(what string, wanted corev1.ConditionStatus) {
			t.Helper()
			pass(10 * time.Second)
			for _, c := range r.api.Pod("web").Status.Conditions {
				if c.Type == gate {
					want(t, what, c.Status, wanted)
				}
			}
		}
		report := func(c corev1.PodCondition) {
			r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{c} })
		}
		report(given)
		is("copied", corev1.ConditionFalse)
		report(gateIs(corev1.ConditionTrue, "", time.Now()))
		is("changed", corev1.ConditionTrue)
		report(given)
		is("changed back", corev1.ConditionFalse)
		report(gateIs(corev1.ConditionTrue, "", time.Time{}))
		is("changed again", corev1.ConditionTrue)
		r.api.ChangePod("web", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{gateIs(corev1.ConditionUnknown, "", time.Now())}
		})
		is("overwritten by others", corev1.ConditionTrue)
	})
}

// That all containers are restarting no longer is a kubelet's word, also if the process before wrote
// that they are, at the same time or later by its clock.
func TestConditionsOfAKubeletAreNoCopies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		}))
		since := metav1.Now()
		pass(time.Minute)
		r.provider.ChangePod("web", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse, LastTransitionTime: since}}
		})
		pass(10 * time.Second)
		want(t, "status", r.api.Pod("web").Status.Conditions[0].Status, corev1.ConditionFalse)
	})
}
