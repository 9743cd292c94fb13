package observability

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// targetLabels are what Prometheus adds to all that it scrapes.
var targetLabels = []string{"job", "instance", "namespace"}

// metric is one that a virtual-kubelet has in /metrics.
type metric struct {
	kind   string
	labels []string
}

// readMetrics reads the list that the integration tests compare with a node that
// runs: for each metric its name, type and labels. Histograms are there with the
// names of their series.
func readMetrics(t *testing.T) map[string]metric {
	t.Helper()
	list, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]metric{"up": {"gauge", targetLabels}}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		name, m := fields[0], metric{fields[1], append(fields[2:], targetLabels...)}
		if m.kind != "histogram" {
			metrics[name] = m
			continue
		}
		metrics[name+"_count"], metrics[name+"_sum"] = m, m
		metrics[name+"_bucket"] = metric{m.kind, append(slices.Clone(m.labels), "le")}
	}
	return metrics
}

// check parses an expression, and returns the labels of the metrics in it, and
// what is wrong with it.
func check(metrics map[string]metric, expression string) (labels []string, problems []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return nil, []string{err.Error()}
	}
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	labels = labelsIn(metrics, expr)
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			m, ok := metrics[node.Name]
			if !ok {
				problem("there is no metric %q", node.Name)
				return nil
			}
			for _, matcher := range node.LabelMatchers {
				if matcher.Name != "__name__" && !slices.Contains(m.labels, matcher.Name) {
					problem("%s has no label %q", node.Name, matcher.Name)
				}
			}
			if m.kind != "gauge" && !counted(path) {
				problem("%s is a %s: its rate is what counts", node.Name, m.kind)
			}
		case *parser.AggregateExpr:
			within := labelsIn(metrics, node.Expr)
			for _, label := range node.Grouping {
				if !slices.Contains(within, label) {
					problem("nothing in %s has a label %q", node.Expr, label)
				}
			}
		}
		return nil
	})
	return labels, problems
}

// counted reports whether what is inside of these nodes is made a rate.
func counted(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(node parser.Node) bool {
		call, ok := node.(*parser.Call)
		return ok && slices.Contains([]string{"rate", "increase"}, call.Func.Name)
	})
}

// labelsIn are the labels of all metrics in an expression.
func labelsIn(metrics map[string]metric, expr parser.Node) (labels []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			labels = append(labels, metrics[selector.Name].labels...)
		}
		return nil
	})
	return labels
}

// What the checks are to find.
func TestChecksFindMistakes(t *testing.T) {
	metrics := readMetrics(t)
	for expression, says := range map[string]string{
		`sum(`:                                   "unclosed",
		`sum(vk_noodles)`:                        "vk_noodles",
		`vk_nodes{raedy="true"}`:                 "raedy",
		`sum by (method) (vk_nodes)`:             "method",
		`workqueue_adds_total`:                   "rate",
		`vk_provider_call_duration_seconds`:      "vk_provider_call_duration_seconds",
		`rate(workqueue_adds_total{le="1"}[5m])`: "le",
	} {
		if _, problems := check(metrics, expression); !strings.Contains(strings.Join(problems, "\n"), says) {
			t.Errorf("%s: found %q, want something about %q", expression, problems, says)
		}
	}
}
