package podlifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// journal keeps log lines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// lines are those so far.
func (j *journal) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(j.text.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		for key := range fields { // a key that is there twice is lost in the map
			if bytes.Count(line, []byte(`"`+key+`":`)) > 1 {
				t.Errorf("%q is in this line twice: %s", key, line)
			}
		}
		lines = append(lines, fields)
	}
	return lines
}

// A search of the log for a pod finds all that happened to it.
func TestEveryLineAboutAPodNamesIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var j journal
		before := log.L
		log.L = vkslog.FromSlog(slog.New(slog.NewJSONHandler(&j, &slog.HandlerOptions{Level: slog.LevelDebug})))
		t.Cleanup(func() { log.L = before })
		r.handler = r.provider.Polled()
		r.start()
		// The lines from here on are about the one pod.
		begin := len(j.lines(t))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { panic("no") }
			s.OnStatus = func(string) error { return errors.New("no") }
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errors.New("no") }
		})
		pod := r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
		pass(time.Minute)
		r.api.ChangePod("web", func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		pass(time.Minute)
		r.api.DeletePod("web")
		pass(time.Minute)
		r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
		pass(5 * time.Minute)
		if r.api.Pod("web") != nil {
			t.Fatal("the pod is still there")
		}
		logged := map[any]bool{}
		for _, line := range j.lines(t)[begin:] {
			logged[line["msg"]] = true
			if line["namespace"] != "default" || line["pod"] != "web" || line["uid"] != string(pod.UID) {
				t.Errorf("a line does not say which pod it is about: %v", line)
			}
		}
		for _, message := range []string{"Created pod in provider", "Updated pod in provider", "Deleted pod in provider", "Wrote pod status",
			"Removed pod from the API", "Will try again", "The provider panicked"} {
			if !logged[message] {
				t.Errorf("no line is %q", message)
			}
		}
	})
}

// Each log line and each span about a pod whose name was taken over by another one
// carries the UID of the pod that it is about.
func TestLinesAndSpansOfARecreatedPodCarryItsUID(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		var j journal
		before := log.L
		log.L = vkslog.FromSlog(slog.New(slog.NewJSONHandler(&j, &slog.HandlerOptions{Level: slog.LevelDebug})))
		t.Cleanup(func() { log.L = before })
		spans := traced(t)
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		old, replacement := r.replace("web")
		pass(10 * time.Minute)
		want(t, "held", r.provider.Holds("web"), []types.UID{replacement})
		for message, uids := range map[string][]types.UID{
			"Created pod in provider": {old, replacement},
			"Deleted pod in provider": {old},
		} {
			var got []types.UID
			for _, line := range j.lines(t) {
				if line["msg"] == message {
					got = append(got, types.UID(line["uid"].(string)))
				}
			}
			want(t, message, got, uids)
		}
		for _, span := range spans.GetSpans() {
			if span.Name != "CreatePod" && span.Name != "DeletePod" {
				continue
			}
			above := syncOf(t, spans.GetSpans(), span)
			if got, want := uidOf(above), uidOf(span); got != want {
				t.Errorf("%s of %s is in a span about %s", span.Name, want, got)
			}
		}
	})
}

func uidOf(span tracetest.SpanStub) (uid string) {
	for _, a := range span.Attributes {
		if string(a.Key) == providercalls.AttributeUID {
			uid = a.Value.AsString()
		}
	}
	return uid
}
