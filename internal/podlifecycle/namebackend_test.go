package podlifecycle

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
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
		"our UID":              {false, born("a", unborn), true},
		"our UID, at any time": {true, born("a", 9*time.Hour), true},
		"no UID, no time":      {false, born("", unborn), true},
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
			var u uidHabits
			for _, uid := range []types.UID{"u1", "u2", "u3"} {
				if tc.keeps {
					u.matched(uid)
				}
			}
			want(t, "same", u.alike(ours.UID, ours.CreationTimestamp, tc.found), tc.want)
		})
	}
}

// A provider that shows a few pods under our UIDs is not taken for one that keeps all
// of them, nor is one that has shown a pod of ours under another.
func TestIdentityLearns(t *testing.T) {
	var u uidHabits
	foreign := func() bool { return u.alike("a", born("a", 0).CreationTimestamp, born("x", 0)) }
	want(t, "a foreign UID at first", foreign(), true)
	for range 9 {
		u.matched("b")
	}
	want(t, "after one of ours, often", foreign(), true)
	u.matched("c")
	want(t, "after two of ours", foreign(), true)
	u.matched("d")
	want(t, "after three of ours", foreign(), false)
	u.differ = true
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
	digest := "sha256:" + strings.Repeat("0", 63)
	showing := func(image string) func(*corev1.Pod) { // without a generation
		return func(p *corev1.Pod) { p.Generation, p.Spec.Containers[0].Image = 0, image }
	}
	requesting := func(cpu, memory string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			if memory != "" {
				list[corev1.ResourceMemory] = resource.MustParse(memory)
			}
			p.Generation, p.Spec.Containers[0].Resources = 0, corev1.ResourceRequirements{Requests: list, Limits: list}
		}
	}
	ending := func(after int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Generation, p.Spec.ActiveDeadlineSeconds = 0, &after }
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
		"another UID means nothing": {pod(func(p *corev1.Pod) { p.UID = "x"; p.Labels["l"] = "0" }), pod(), false},
		"generation not observed":   {pod(), pod(func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }), true},
		"generation observed":       {pod(), pod(func(p *corev1.Pod) { p.Status.ObservedGeneration = 3 }), false},
		"an older generation":       {pod(), pod(func(p *corev1.Pod) { p.Generation = 9 }), true},
		"generation was reported":   {pod(func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }), pod(), true},
		"an image of its own":       {pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "cr.example.org/nginx" }), pod(), false},
		"no container is shown": {pod(func(p *corev1.Pod) { p.Generation, p.Spec.Containers = 0, nil }), pod(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
		}), false},
		"names of containers are shown": {pod(func(p *corev1.Pod) { p.Generation, p.Spec.Containers[0].Image = 0, "" }), pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits, p.Spec.ActiveDeadlineSeconds = corev1.ResourceList{corev1.ResourceCPU: {}}, ptr.To[int64](60)
		}), false},
		"another image":                  {pod(showing("nginx:2")), pod(showing("nginx:3")), true},
		"an image with registry and tag": {pod(showing("docker.io/library/nginx:latest")), pod(showing("nginx")), false},
		"another with registry and tag":  {pod(showing("docker.io/library/nginx:1")), pod(showing("nginx")), true},
		"an image by digest":             {pod(showing("nginx@" + digest + "1")), pod(showing("nginx:1")), false},
		"an image by ID":                 {pod(showing(digest + "1")), pod(showing("nginx@" + digest + "2")), false},
		"by digest where it has a tag":   {pod(showing("docker.io/library/nginx@" + digest + "1")), pod(showing("nginx:1@" + digest + "1")), false},
		"another digest":                 {pod(showing("nginx@" + digest + "1")), pod(showing("nginx@" + digest + "2")), true},
		"resources as they are sold":     {pod(requesting("1", "2Gi")), pod(requesting("900m", "1500Mi")), false},
		"a resource is left out":         {pod(requesting("1", "")), pod(requesting("1", "1Gi")), false},
		"another deadline":               {pod(ending(60)), pod(ending(50)), true},
		"an ephemeral container": {pod(showing("nginx")), pod(func(p *corev1.Pod) {
			p.Generation, p.Spec.EphemeralContainers = 0, make([]corev1.EphemeralContainer, 1)
		}), true},
		"a container of its own": {pod(func(p *corev1.Pod) {
			p.Generation, p.Spec.Containers = 0, append(p.Spec.Containers, corev1.Container{Name: "sidecar", Image: "proxy"})
		}), pod(), false},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, "outdated", outdated(tc.found, tc.pod), tc.want)
		})
	}
}

// The UIDs of pods that have left are remembered, the newest of them, and no more than
// so many, however long the process runs.
func TestPodsThatHaveLeft(t *testing.T) {
	var u uidHabits
	for n := range 3 * rememberedUIDs {
		u.leave(types.UID(strconv.Itoa(n)))
		u.leave(types.UID(strconv.Itoa(n)))
	}
	left := func(n int) bool { _, ok := u.left[types.UID(strconv.Itoa(n))]; return ok }
	want(t, "remembered", len(u.left), rememberedUIDs)
	want(t, "the newest", left(3*rememberedUIDs-1), true)
	want(t, "the oldest of those", left(2*rememberedUIDs), true)
	want(t, "one before", left(2*rememberedUIDs-1), false)
}

// No matter what a provider that goes by names shows, nothing is done or believed about the
// wrong pod.
func TestHistoriesOfNames(t *testing.T) {
	file, err := os.Open("testdata/namebackend.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var name string
	histories, names := map[string][]string{}, []string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if title, ok := strings.CutPrefix(line, "history: "); ok {
			name = title
			names = append(names, title)
		} else if line != "" && !strings.HasPrefix(line, "#") {
			histories[name] = append(histories[name], line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &nameHistory{begin: time.Now(), provider: nodetest.New()}
				h.b = newNameBackend(newBackend(h.provider.Polled(), nil), func(types.NamespacedName) *corev1.Pod { return h.api })
				for _, line := range histories[name] {
					step, wanted, question := strings.Cut(line, " -> ")
					got, err := h.step(t.Context(), step)
					switch {
					case err != nil:
						t.Fatalf("%s: %v", line, err)
					case got != wanted:
						t.Errorf("%s: got %q, want %q", step, got, wanted)
					case question == (got == ""):
						t.Fatalf("%s: a question has an answer, and no other step", line)
					}
				}
			})
		})
	}
}

// nameHistory is what happens under one name.
type nameHistory struct {
	begin    time.Time
	api      *corev1.Pod
	provider *nodetest.Backend
	b        *nameBackend
}

// pod reads UID@AGE.
func (h *nameHistory) pod(text string) (*corev1.Pod, error) {
	uid, age, timed := strings.Cut(text, "@")
	pod := aPod("web", func(p *corev1.Pod) { p.Namespace, p.UID = "ns", types.UID(strings.TrimPrefix(uid, "-")) })
	if !timed {
		return pod, nil
	}
	d, err := time.ParseDuration(age)
	pod.CreationTimestamp = metav1.NewTime(h.begin.Add(-d))
	return pod, err
}

func (h *nameHistory) step(ctx context.Context, step string) (answer string, err error) {
	what, arguments, _ := strings.Cut(step, " ")
	first, second, two := strings.Cut(strings.NewReplacer(", holds ", "|", " as ", "|").Replace(arguments), "|")
	var pod, other *corev1.Pod
	if what != "pass" && what != "keeps" && first != "none" {
		if pod, err = h.pod(first); err != nil {
			return "", err
		}
	}
	if two && second != "none" {
		if other, err = h.pod(second); err != nil {
			return "", err
		}
	}
	switch what {
	case "api":
		h.api = pod
	case "create":
		return "", h.b.create(ctx, pod)
	case "held":
		h.b.hold(idOf(pod), pod, other)
	case "orphan":
		h.b.adopt(pod, true)
	case "over":
		h.b.forget(idOf(pod), pod)
	case "keeps":
		for _, uid := range []types.UID{"u1", "u2", "u3"} {
			h.b.uids.matched(uid)
		}
	case "pass":
		d, err := time.ParseDuration(arguments)
		time.Sleep(d)
		return "", err
	case "shows":
		switch i := h.b.identify(pod); {
		case i.is:
			return "is " + string(i.id), nil
		case i.id != "":
			return "instead of " + string(i.id), nil
		case i.unknown:
			return "unknown", nil
		}
		return "echo", nil
	case "find":
		h.provider.Empty()
		if other != nil {
			h.provider.Hold(other, corev1.PodRunning)
		}
		h.provider.TakeCalls()
		found, namesake, err := h.b.find(ctx, idOf(pod), pod, false)
		switch asked := len(h.provider.TakeCalls("get")) > 0; {
		case err != nil:
			return "", err
		case found != nil:
			return "found", nil
		case namesake != nil:
			return "namesake", nil
		case asked:
			return "nothing", nil
		}
		return "not asked", nil
	case "delete":
		h.provider.TakeCalls()
		if _, err := h.b.delete(ctx, idOf(pod), pod, time.Second); err != nil {
			return "", err
		}
		if len(h.provider.TakeCalls("delete")) > 0 {
			return "asked", nil
		}
		return "not asked", nil
	case "adopt":
		if _, ok := h.b.adopt(pod, false); ok {
			return "yes", nil
		}
		return "no", nil
	default:
		return "", fmt.Errorf("no such step: %s", what)
	}
	return "", nil
}
