package mock

import (
	"fmt"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// logInterval is how often a running container writes a line.
	logInterval = 10 * time.Second
	// longestLog is how many of those lines are kept.
	longestLog = 1000
)

// logLines returns what a run of a container has written by now, with at least the lines
// since a time: it depends on nothing but the times of the run, so that it is the same each
// time.
func (h *held) logLines(container string, i instance, since, now time.Time) []api.LogLine {
	if i.started.IsZero() || i.started.After(now) {
		return nil
	}
	who := fmt.Sprintf("mock container %q of pod %s/%s", container, h.pod.namespace, h.pod.name)
	end := now
	if !i.ended.IsZero() {
		end = i.ended
	}
	lines := []api.LogLine{{Time: i.started, Text: who + " started"}}
	tick := max(1, int(end.Sub(i.started)/logInterval)-longestLog+1, int(since.Sub(i.started)/logInterval))
	at := i.started.Add(time.Duration(tick) * logInterval)
	if !i.ready.IsZero() {
		for ; at.Before(i.ready); tick, at = tick+1, at.Add(logInterval) {
			lines = append(lines, tickLine(who, tick, at))
		}
		lines = append(lines, api.LogLine{Time: i.ready, Text: who + " is ready"})
	}
	for ; !at.After(end); tick, at = tick+1, at.Add(logInterval) {
		lines = append(lines, tickLine(who, tick, at))
	}
	if !i.ended.IsZero() {
		lines = append(lines, api.LogLine{Time: i.ended, Text: fmt.Sprintf("%s exited with code %d", who, i.code)})
	}
	return lines
}

func tickLine(who string, tick int, at time.Time) api.LogLine {
	return api.LogLine{Time: at, Text: fmt.Sprintf("%s has been running for %s", who, time.Duration(tick)*logInterval)}
}
