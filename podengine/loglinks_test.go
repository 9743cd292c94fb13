package podengine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Log collectors find each container's log by a link, which goes with the log.
func TestLogsAreLinked(t *testing.T) {
	links := filepath.Join(t.TempDir(), "containers")
	inBubbleWith(t, func(r *rig) { r.cfg.LogLinks = links }, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second, code: 1}
		pod := makePod("a b")
		other := makePod("a", func(p *corev1.Pod) { p.Name, p.UID = "p-2", "other" })
		r.create(pod)
		r.create(other)
		r.after(5 * time.Minute)
		targets := map[string]int{}
		for _, link := range linksIn(t, links) {
			target, err := os.Readlink(link)
			if err != nil {
				t.Fatal(err)
			}
			if name := filepath.Base(link); !strings.HasPrefix(name, pod.Name+"_"+pod.Namespace+"_") && !strings.HasPrefix(name, "p-2_") || !strings.HasSuffix(name, ".log") {
				t.Errorf("a link is called %s", name)
			}
			targets[filepath.Base(filepath.Dir(target))]++
		}
		if len(targets) != 2 || targets["b"] != 1 || targets["a"] > 4 { // the last two of each of the two pods
			t.Errorf("there are links to logs of %v", targets)
		}
		r.delete(pod, 0)
		r.after(time.Minute)
		for _, link := range linksIn(t, links) {
			if !strings.HasPrefix(filepath.Base(link), "p-2_") {
				t.Errorf("the pod has gone, and left %s", link)
			}
		}
		if len(linksIn(t, links)) == 0 {
			t.Error("the links of another pod have gone")
		}
	})
}

func TestLogLinkNames(t *testing.T) {
	pod := makePod("a")
	if got, want := logLinkName(pod, "a", "0123"), pod.Name+"_"+pod.Namespace+"_a-0123.log"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	pod.Name = strings.Repeat("x", 253)
	if got := logLinkName(pod, "a", "0123"); len(got) != 255 || !strings.HasSuffix(got, ".log") {
		t.Errorf("a long one has %d characters: %s", len(got), got)
	}
}

func linksIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return links
}
