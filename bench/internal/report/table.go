package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// table is the measures of all agents: medians, with the outermost values where
// there are several, and ratios to the floor.
func (r Result) table() [][]string {
	floor, hasFloor := r.floor()
	candidate, _ := r.candidate()
	head := []string{r.Title}
	for _, a := range r.Agents {
		head = append(head, a.Name)
		if hasFloor && !a.Floor {
			head = append(head, "ratio")
		}
	}
	goals := slices.ContainsFunc(r.Measures, func(m Measure) bool { return m.Goal != nil })
	if goals {
		head = append(head, "goal: met")
	}
	table := [][]string{head}
	for _, m := range r.Measures {
		base := floor.of(m.Name)
		line := []string{m.label()}
		for _, a := range r.Agents {
			value := a.of(m.Name)
			line = append(line, value.String())
			if hasFloor && !a.Floor {
				line = append(line, ratio(value, base))
			}
		}
		if goals {
			line = append(line, goalColumn(m.Goal, candidate.of(m.Name), base))
		}
		table = append(table, line)
	}
	return table
}

// goalColumn is the goal, and whether the value meets it.
func goalColumn(g *Goal, value, floor spread) string {
	if verdict := g.verdict(value, floor); verdict != "" {
		return g.String() + ": " + verdict
	}
	return g.String()
}

// requests is the requests of all agents by their kind, the most frequent of each
// phase first.
func (r Result) requests() [][]string {
	most := map[string]float64{}
	for _, a := range r.Agents {
		for _, s := range a.Samples {
			for kind := range s.Requests {
				most[kind] = max(most[kind], a.ofRequests(kind).median)
			}
		}
	}
	kinds := make([]string, 0, len(most))
	for kind, count := range most {
		if count >= 0.005 { // shown as 0.01
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b string) int {
		if order := r.phase(a) - r.phase(b); order != 0 {
			return order
		}
		if most[a] != most[b] {
			return int(math.Copysign(1, most[b]-most[a]))
		}
		return strings.Compare(a, b)
	})
	head := []string{strings.TrimSpace("requests " + r.RequestUnit)}
	for _, a := range r.Agents {
		head = append(head, a.Name)
	}
	table := [][]string{head}
	for _, kind := range kinds {
		line := []string{kind}
		for _, a := range r.Agents {
			line = append(line, a.ofRequests(kind).String())
		}
		table = append(table, line)
	}
	return table
}

// phase is the place of the phase of a kind of request.
func (r Result) phase(kind string) int {
	return slices.IndexFunc(r.Phases, func(phase string) bool { return strings.HasPrefix(kind, phase+": ") })
}

// Text writes the tables for a terminal.
func (r Result) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	tables := [][][]string{r.table()}
	if requests := r.requests(); len(requests) > 1 {
		tables = append(tables, [][]string{nil}, requests)
	}
	for _, table := range tables {
		for _, line := range table {
			fmt.Fprintln(out, strings.Join(line, "\t"))
		}
	}
	fmt.Fprintf(out, "\n%s\n", strings.Join(r.Conditions, "; "))
	return out.Flush()
}

// Markdown writes the tables for a document.
func (r Result) Markdown(w io.Writer) error {
	var out strings.Builder
	for n, table := range [][][]string{r.table(), r.requests()} {
		if n > 0 && len(table) == 1 {
			continue // none was counted
		}
		for i, line := range table {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintf(&out, "|%s\n", "---|"+strings.Repeat("---:|", len(line)-1))
			}
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "Measured with: %s.\n", strings.Join(r.Conditions, "; "))
	_, err := io.WriteString(w, out.String())
	return err
}

func (m Measure) label() string {
	if m.Unit == "" {
		return m.Name
	}
	return m.Name + ", " + m.Unit
}

func (s spread) String() string {
	switch {
	case s.count == 0:
		return "–"
	case number(s.least) == number(s.most):
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.median), number(s.least), number(s.most))
}

func ratio(value, base spread) string {
	if value.count == 0 || base.count == 0 || cents(base.median) == 0 {
		return "–"
	}
	return number(value.median / base.median)
}

func number(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e6 || math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
