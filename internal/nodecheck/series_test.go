package nodecheck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// Where no pod runs, only the checks are made that need none, and the one that finds that out.
func TestWithoutPodsAllElseIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewForClient(fake.NewClientset(), Options{Name: "node", Shell: DefaultShell(), Timeout: time.Minute})
		began := time.Now()
		results, err := RunAll(t.Context(), n, Selection{Capabilities: []Capability{Commands, Logs, Exec}}, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			switch made := slices.Contains([]string{"node-ready", "node-lease", "pod-runs"}, r.Check.Name); {
			case made && r.Outcome != Failed, !made && r.Outcome != Skipped:
				t.Errorf("%s is %s: %s", r.Check.Name, r.Outcome, r.Why)
			case !made && strings.Contains(r.Why, "has failed") && !strings.HasPrefix(r.Why, "pod-runs has failed"):
				t.Errorf("%s is skipped: %s", r.Check.Name, r.Why)
			}
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("that took %v", took)
		}
	})
}

// A check waits for the one that it depends on, unless that is not to be made.
func TestChecksThatNeedWhatIsNotThereAreSkipped(t *testing.T) {
	n := NewForClient(nil, Options{Name: "node"})
	selected := true
	s := NewSeries(t.Context(), n, func(c Check) bool { return selected || c.Name != "exit-zero" })
	for name, err := range map[string]error{"pod-runs": errors.New("it has no address"), "exit-zero": lacking{errors.New("it does not end")}} {
		m := &made{done: make(chan struct{})}
		m.result = Check{run: func(context.Context, *Scope) error { return err }}.Run(t.Context(), n)
		close(m.done)
		s.made[name] = m
	}
	check := Check{Name: "new", Needs: []Capability{Volumes, Commands}, run: func(context.Context, *Scope) error { return nil }}
	if r := s.run(check); r.Outcome != Skipped || !r.Blocked || r.Why != "exit-zero has failed, without which this cannot pass" {
		t.Errorf("got %+v", r)
	}
	selected = false
	if r := s.run(check); r.Outcome != Passed {
		t.Errorf("where it does not depend on what is not made: %+v", r)
	}
	// None depends on itself, so that none waits for itself.
	var depends func(c Check, above []string)
	depends = func(c Check, above []string) {
		if slices.Contains(above, c.Name) {
			t.Fatalf("%s depends on itself: %v", c.Name, above)
		}
		for _, base := range s.basesOf(c) {
			depends(base, append(above, c.Name))
		}
	}
	selected = true
	found := 0
	for _, c := range Checks() {
		depends(c, nil)
		if slices.Contains([]string{"pod-runs", "exit-zero", "logs", "exec-output"}, c.Name) {
			found++
		}
	}
	if found != len(bases) {
		t.Errorf("%d of %d bases are checks", found, len(bases))
	}
}
