package statuspage

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// Text writes the status for a terminal.
func (s *Status) Text(to io.Writer) error {
	now := s.Time.Time
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	state := "ready"
	if !s.Ready() {
		state = "not ready"
	}
	fmt.Fprintf(w, "%s: %s, virtual-kubelet %s, started %s ago\n", clean(s.Node), state, clean(s.Version), age(now, &s.Started))
	if s.Nodes > 1 {
		fmt.Fprintf(w, "%d nodes in this process, %d ready\n", s.Nodes, s.ReadyNodes)
	}
	fmt.Fprintf(w, "\nCHECK\tSTATE\tLAST\n")
	for _, c := range s.Checks {
		state := "ok"
		if c.Error != "" {
			state = clean(c.Error)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", clean(c.Name), state, orDash(age(now, c.Last)))
	}
	if len(s.Pods) > 0 {
		fmt.Fprintf(w, "\nPOD\tPHASE\tCREATED\tSEEN\tAT PROVIDER\tRUNNING\tREADY\tPROBLEM\n")
	}
	for _, p := range s.attention() {
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(p.Namespace), clean(p.Name), clean(p.phase()), orDash(age(now, p.Requested)),
			orDash(age(now, p.Seen)), orDash(age(now, p.Created)), orDash(age(now, p.Running)), orDash(age(now, p.Ready)), clean(p.problem(now)))
	}
	if len(s.Calls) > 0 {
		fmt.Fprintf(w, "\nPROVIDER, LAST HALF HOUR\tCALLS\tERRORS\tMEAN\tIN FLIGHT\n")
	}
	for i := range s.Calls {
		m := &s.Calls[i]
		all := m.sum()
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", clean(m.Name), all.Calls, all.Errors, orDash(mean(all)), inFlight(now, m))
	}
	fmt.Fprintf(w, "\nQUEUE\tWAITING\tHANDLED\n")
	for _, q := range s.Queues {
		fmt.Fprintf(w, "%s\t%d\t%d\n", clean(q.Name), q.Waiting, q.Handled)
	}
	if len(s.Others) > 0 {
		fmt.Fprintf(w, "\nOTHER NODE\tSTATE\tLEASE\tPROVIDER\n")
	}
	for i := range s.Others {
		o := &s.Others[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", clean(o.Name), clean(o.state()), orDash(age(now, o.Lease)), orDash(age(now, o.Ping)))
	}
	if len(s.Events) > 0 {
		fmt.Fprintf(w, "\nLAST\tTYPE\tREASON\tOBJECT\tCOUNT\tMESSAGE\n")
	}
	for _, e := range s.Events {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", age(now, &e.Time), clean(e.Type), clean(e.Reason), clean(e.Object), e.Count, clean(e.Message))
	}
	return w.Flush()
}

// Line is one line of a table of nodes, whose columns tabs separate: those of LineHeader.
func (s *Status) Line() string {
	state, failing, running := "ready", 0, 0
	for _, c := range s.Checks {
		if c.Error != "" {
			state = "not ready (" + c.Name + ")"
		}
	}
	for i := range s.Pods {
		if s.Pods[i].Error != "" {
			failing++
		}
		if s.Pods[i].Phase == corev1.PodRunning {
			running++
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d, %d running\t%d pods with errors", clean(s.Node), clean(state), age(s.Time.Time, &s.Started), len(s.Pods), running, failing)
}

// LineHeader names the columns of Line.
const LineHeader = "NODE\tSTATE\tSTARTED\tPODS\tPROBLEMS"

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// clean keeps what others have written from moving the cursor, beginning a new line, or
// turning around what follows.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, text)
}
