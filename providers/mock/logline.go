package mock

import (
	"fmt"
	"time"
)

const (
	// logInterval is how often a running container writes a line.
	logInterval = 10 * time.Second
	// longestLog is how many of those lines are kept.
	longestLog = 1000
)

type logLine struct {
	at   time.Time
	text string
}

// logLines returns what a run of a container has written by now: it depends on
// nothing but the times of the run, so that it is the same each time.
func (h *held) logLines(container string, i instance, now time.Time) []logLine {
	if i.started.IsZero() || i.started.After(now) {
		return nil
	}
	who := fmt.Sprintf("mock container %q of pod %s/%s", container, h.pod.Namespace, h.pod.Name)
	end := now
	if !i.ended.IsZero() {
		end = i.ended
	}
	lines := []logLine{{i.started, who + " started"}}
	tick := max(1, int(end.Sub(i.started)/logInterval)-longestLog+1)
	at := i.started.Add(time.Duration(tick) * logInterval)
	if !i.ready.IsZero() {
		for ; at.Before(i.ready); tick, at = tick+1, at.Add(logInterval) {
			lines = append(lines, tickLine(who, tick, at))
		}
		lines = append(lines, logLine{i.ready, who + " is ready"})
	}
	for ; !at.After(end); tick, at = tick+1, at.Add(logInterval) {
		lines = append(lines, tickLine(who, tick, at))
	}
	if !i.ended.IsZero() {
		lines = append(lines, logLine{i.ended, fmt.Sprintf("%s exited with code %d", who, i.code)})
	}
	return lines
}

func tickLine(who string, tick int, at time.Time) logLine {
	return logLine{at, fmt.Sprintf("%s has been running for %s", who, time.Duration(tick)*logInterval)}
}

// nextLogLine returns when the run of a container will write its next tick.
func nextLogLine(i instance, now time.Time) time.Time {
	return i.started.Add((now.Sub(i.started)/logInterval + 1) * logInterval)
}
