package podlifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// A call that takes too long shows in the node's conditions and in a metric, and no
// more when it has returned.
func TestSlowCallsShow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		metrics := providercalls.NewMetrics()
		r.start(func(cfg *Config) { cfg.Metrics = metrics })
		longest := func() float64 {
			t.Helper()
			found := make(chan prometheus.Metric, 100)
			metrics.CollectLongest(found)
			close(found)
			most := 0.0
			for m := range found {
				var value dto.Metric
				if err := m.Write(&value); err != nil {
					t.Fatal(err)
				}
				most = max(most, value.Gauge.GetValue())
			}
			return most
		}
		release := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { <-release; return nil }
		})
		r.api.AddPod(aPod("web"))
		begin := time.Now().UTC().Format(time.RFC3339)
		pass(9 * time.Minute)
		want(t, "slow calls after nine minutes", len(r.pc.SlowCalls()), 0)
		want(t, "condition before", r.condition(ConditionProviderCallsSlow), corev1.ConditionFalse)
		want(t, "longest call", longest(), 540)
		r.api.AddPod(aPod("api"))
		pass(3 * time.Minute)
		want(t, "slow calls", len(r.pc.SlowCalls()), 1)
		want(t, "condition", r.pc.NodeConditions()[0], corev1.NodeCondition{Type: ConditionProviderCallsSlow, Status: corev1.ConditionTrue,
			Reason: "ProviderHangs", Message: "CreatePod of pod default/web has not returned since " + begin})
		pass(10 * time.Minute)
		if message := r.pc.NodeConditions()[0].Message; !strings.HasSuffix(message, begin+", and 1 more calls") {
			t.Errorf("message %q", message)
		}
		close(release)
		synctest.Wait()
		want(t, "status", r.pc.NodeConditions()[0].Status, corev1.ConditionFalse)
		want(t, "longest call", longest(), 0)
	})
}

// A list that hangs holds up only those who wait for it, as long as their contexts
// last; it is cancelled when nobody waits for it any more.
func TestListHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := &hangingLists{Polled: nodetest.New().Polled()}
		b := newBackend(provider, nil)
		patient, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() { _, err := b.list(patient); results <- err }()
		synctest.Wait()
		begin := time.Now()
		short, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		go func() { _, err := b.list(short); results <- err }() // waits for its turn
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("the second ended with %v after %v", err, time.Since(begin))
		}
		want(t, "lists cancelled, as one waits", provider.cancelled, 0)
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the first ended with %v", err)
		}
		b.lists.Wait()
		want(t, "lists begun", provider.begun, 1)
		want(t, "lists cancelled", provider.cancelled, 1)
		provider.answers = true
		pods, err := b.list(t.Context())
		want(t, "pods of the next", len(pods), 1)
		want(t, "error of the next", err, nil)
	})
}

// hangingLists is a provider whose lists hang until their context ends.
type hangingLists struct {
	nodetest.Polled
	begun, cancelled int
	answers          bool
}

func (p *hangingLists) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	p.begun++
	if p.answers {
		return []*corev1.Pod{aPod("web")}, nil
	}
	<-ctx.Done()
	p.cancelled++
	return nil, ctx.Err()
}

// A hung list does not hold up the end of pods, of a provider either whose GetPod
// has no other error for a pod that it does not know.
func TestHungListDoesNotHoldUpEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		release := make(chan struct{})
		defer close(release)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			r.api.AddPod(aPod(name))
		}
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.OnList = func() error { <-release; return nil }
			s.OnGet = func(string) error { return errors.New("no such pod") }
		})
		pass(time.Minute)
		r.provider.TakeCalls()
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			r.api.DeletePod(name, 60)
		}
		pass(3 * time.Minute)
		calls := r.provider.TakeCalls("delete")
		kills := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasSuffix(c, "grace 0") })
		if len(kills) < 5 {
			t.Errorf("calls %q, want each killed when its grace period is over", calls)
		}
	})
}
