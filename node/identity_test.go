package node

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func born(uid types.UID, ago time.Duration) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	if ago >= 0 {
		pod.CreationTimestamp = metav1.Time{Time: epoch.Add(-ago)}
	}
	return pod
}

func TestIdentity(t *testing.T) {
	ours := born("a", time.Hour)
	const unborn = -1
	for name, tc := range map[string]struct {
		keeps bool
		found *corev1.Pod
		want  bool
	}{
		"our UID":                    {false, born("a", unborn), true},
		"our UID, whatever the time": {true, born("a", 9*time.Hour), true},
		"no UID, no time":            {false, born("", unborn), true},
		"no UID, no time, from one that keeps UIDs":  {true, born("", unborn), true},
		"no UID, its own time":                       {false, born("", time.Minute), true},
		"no UID, a clock that is slow":               {false, born("", time.Hour+time.Minute), true},
		"no UID, older":                              {false, born("", time.Hour+2*time.Minute), false},
		"a UID of its own":                           {false, born("x", time.Minute), true},
		"a UID of its own, older":                    {false, born("x", 2*time.Hour), false},
		"another UID, from one that keeps UIDs":      {true, born("x", time.Minute), false},
		"no UID, older, from one that keeps UIDs":    {true, born("", 2*time.Hour), false},
		"no UID, our time, from one that keeps UIDs": {true, born("", time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			var i identity
			for _, uid := range []types.UID{"u1", "u2", "u3"} {
				if tc.keeps {
					i.match(uid)
				}
			}
			want(t, "same", i.alike(ours, tc.found), tc.want)
		})
	}
}

// A provider that shows a few pods under our UIDs is not taken for one that keeps all
// of them, nor is one that has shown a pod of ours under another.
func TestIdentityLearns(t *testing.T) {
	var i identity
	foreign := func() bool { return i.alike(born("a", 0), born("x", 0)) }
	want(t, "a foreign UID at first", foreign(), true)
	for range 9 {
		i.match("b")
	}
	want(t, "after one of ours, often", foreign(), true)
	i.match("c")
	want(t, "after two of ours", foreign(), true)
	i.match("d")
	want(t, "after three of ours", foreign(), false)
	i.differ()
	want(t, "after one of ours under another", foreign(), true)
}

func TestOutdated(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return aPod("web", append([]func(*corev1.Pod){func(p *corev1.Pod) {
			p.UID, p.Generation = "a", 3
			p.Labels = map[string]string{"l": "1"}
			p.Annotations = map[string]string{"n": "1"}
		}}, change...)...)
	}
	for name, tc := range map[string]struct {
		found, pod *corev1.Pod
		want       bool
	}{
		"as it was":                 {pod(), pod(), false},
		"nothing shown":             {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, pod(), false},
		"a label has changed":       {pod(), pod(func(p *corev1.Pod) { p.Labels["l"] = "2" }), true},
		"a label has come":          {pod(), pod(func(p *corev1.Pod) { p.Labels["m"] = "" }), true},
		"an annotation has changed": {pod(), pod(func(p *corev1.Pod) { p.Annotations["n"] = "2" }), true},
		"the provider adds labels":  {pod(func(p *corev1.Pod) { p.Labels["theirs"] = "1" }), pod(), false},
		"another UID tells nothing": {pod(func(p *corev1.Pod) { p.UID = "x"; p.Labels["l"] = "0" }), pod(), false},
		"generation not observed":   {pod(), pod(func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }), true},
		"generation observed":       {pod(), pod(func(p *corev1.Pod) { p.Status.ObservedGeneration = 3 }), false},
		"generations not tracked":   {pod(), pod(func(p *corev1.Pod) { p.Generation = 9 }), false},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, "outdated", outdated(tc.found, tc.pod), tc.want)
		})
	}
}

// The UIDs of pods that have left are remembered, the newest of them, and no more than
// so many, however long the process runs.
func TestPodsThatHaveLeft(t *testing.T) {
	var i identity
	for n := range 3 * rememberedUIDs {
		i.leave(types.UID(strconv.Itoa(n)))
		i.leave(types.UID(strconv.Itoa(n)))
	}
	want(t, "remembered", len(i.left), rememberedUIDs)
	want(t, "the newest", i.hasLeft(types.UID(strconv.Itoa(3*rememberedUIDs-1))), true)
	want(t, "the oldest of those", i.hasLeft(types.UID(strconv.Itoa(2*rememberedUIDs))), true)
	want(t, "one before", i.hasLeft(types.UID(strconv.Itoa(2*rememberedUIDs-1))), false)
}
