//go:build integration

package faults

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

var soak = flag.Duration("faults.soak", 20*time.Second, "for how long the soak has load, in rounds of five minutes at most")

const (
	soakRound = 5 * time.Minute
	// soakRest is the time that a round has to end. A gone name is remembered for a
	// minute, and a pod that the provider holds in vain is found within three.
	soakRest = 6 * time.Minute
)

// One agent, under a mixed load with faults on both sides for as long as
// -faults.soak says, keeps nothing of it: when the faults are over and the pods
// deleted, its goroutines, its files, its memory and its queues are what they were
// before the first pod. What must always hold is checked as in the histories.
//
// It counts what is the process's, and so must not run beside another test: it is
// not parallel, and the histories on the real control plane, which are, have ended
// when the function that runs them has.
func TestSoak(t *testing.T) {
	config, base := realCluster(t), drawSeed(t)
	s := newSoaking(t, realWorld(t, config, drawHistory(base, 0), "soak"), base)
	defer s.w.model.close()
	defer s.w.stop(false)
	if left := s.clear(); len(left) > 0 {
		t.Fatalf("before there was a pod:\n%s", strings.Join(left, "\n"))
	}
	before := s.footprint()
	t.Logf("provider %s; before the first round: %s", s.w.model.shape, before)
	for left := *soak; left > 0 && !t.Failed(); left -= soakRound {
		if s.round(t, min(left, soakRound)); !t.Failed() {
			s.compare(t, before)
		}
	}
}

// soaking is a soak that goes on.
type soaking struct {
	w     *world
	seed  uint64
	ended int // rounds
}

func newSoaking(t *testing.T, w *world, seed uint64) *soaking {
	t.Helper()
	w.workers = 10 // some calls of the provider hang
	w.restWithin = soakRest
	w.addSettings()
	w.model.addForeign()
	w.start()
	if w.agent == nil || w.isBroken() {
		t.Fatal(w.broken)
	}
	return &soaking{w: w, seed: seed}
}

// round has load and faults for d, then neither, until nothing is left.
func (s *soaking) round(t *testing.T, d time.Duration) {
	t.Helper()
	stopWatching := s.w.watch(t)
	steps := s.load(d)
	s.w.heal()
	calm := time.Now()
	left := s.clear()
	stopWatching()
	s.ended++
	pods, ran, broken := s.w.count()
	t.Logf("round %d: %v of load, %d steps, %d pods, of which the provider had %d, at rest %v later",
		s.ended, d, steps, pods, ran, time.Since(calm).Round(time.Second))
	if ran == 0 {
		t.Error("no pod was ever taken on by the provider")
	}
	if problems := slices.Concat(broken, left); len(problems) > 0 {
		t.Errorf("round %d:\n%s", s.ended, strings.Join(problems, "\n"))
	}
	s.w.forget()
}

// clear deletes all pods, and returns what is left of them when all should be at
// rest.
func (s *soaking) clear() (left []string) {
	for deadline := time.Now().Add(s.w.restWithin); time.Now().Before(deadline) && !s.w.isBroken(); {
		list, err := s.w.admin.CoreV1().Pods(s.w.ns).List(s.w.ctx, metav1.ListOptions{})
		s.w.must(err)
		for _, pod := range list.Items {
			s.w.know(&pod) // the watch may be late
			s.w.unfinalize(pod.Name)
			if pod.DeletionTimestamp == nil {
				s.w.delete(pod.Name, nil)
			}
		}
		if left = append(s.w.unrest(), s.leftovers(len(list.Items))...); len(left) == 0 {
			return nil
		}
		time.Sleep(s.w.restStep)
	}
	return left
}

// leftovers says what the agent still has, once there are no pods.
func (s *soaking) leftovers(inAPI int) (left []string) {
	none := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s: %d", what, n))
		}
	}
	none("pods in the API", inAPI)
	agent := s.w.agent
	none("pods whose ConfigMaps and Secrets are followed", agent.config.Objects.(*podobjects.Cache).Followed())
	none("names that the pod controller remembers", agent.node.PodController().RememberedPods())
	known, err := agent.config.Pods.List(labels.Everything())
	s.w.must(err)
	none("pods in the cache", len(known))
	families, err := agent.config.Metrics.(prometheus.Gatherer).Gather()
	s.w.must(err)
	for _, family := range families {
		switch family.GetName() {
		case "vk_pods", "vk_oldest_pending_pod_age_seconds":
			for _, metric := range family.GetMetric() {
				none(family.GetName(), int(metric.GetGauge().GetValue()))
			}
		}
	}
	return left
}

// count returns how many pods there were, how many of them the provider took on, and
// what was broken.
func (w *world) count() (pods, ran int, broken []string) {
	w.model.mu.Lock()
	ran = len(w.model.ran)
	w.model.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pods), ran, slices.Clone(w.broken)
}

// forget forgets the pods that have gone, so that a long soak does not count what
// the test itself remembers of them.
func (w *world) forget() {
	w.prov.Forget()
	if w.model.holds(foreign) == nil { // a lie has ended it
		w.model.addForeign()
	}
	w.model.mu.Lock()
	clear(w.model.ran)
	w.model.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.pods)
}
