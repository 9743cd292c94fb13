package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
)

const introduction = `# Conformance

The Kubernetes e2e suite's node specs on nodes of Virtual Kubelet, and on the real
kubelet for comparison. [conformance/README.md](../conformance/README.md) says how they
are run, and has the command that makes this page; the suite's other specs are in
[conformance-more.md](conformance-more.md).

`

// markdown is the whole page. It names the specs of the list, and others that a node
// has run, that did not pass.
func markdown(nodes []node, list []string) []byte {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("| node | passed | failed | left out | skipped | specs | minutes | day | suite | set-up |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |\n")
	for _, n := range nodes {
		count := map[string]int{}
		for _, c := range n.suite.Cases {
			word, _ := n.outcome(c.Name)
			count[word]++
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %.0f | %s | %s | %s |\n", n.name,
			count["passed"], count["**failed**"], count["left out"], count["skipped"], len(n.suite.Cases),
			n.suite.Seconds/60, n.suite.Begin.Format(time.DateOnly), n.suite.Property(junit.Kubernetes), escape(n.suite.Property(junit.Setup)))
	}
	names := specNames(nodes, list)
	writeReasons(&b, nodes, names)
	fmt.Fprintf(&b, "\n## What passed on all nodes\n\nThe other %d of [specs.txt](../conformance/specs.txt).\n", passedOnAll(nodes, names))
	return []byte(b.String())
}

// specNames are the names of the list and of the specs of all nodes, in order.
func specNames(nodes []node, list []string) []string {
	names := slices.Clone(list)
	for _, n := range nodes {
		for _, c := range n.suite.Cases {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// writeReasons lists what did not pass, by the nodes and the reason, and what nodes were
// not asked for.
func writeReasons(b *strings.Builder, nodes []node, names []string) {
	var reasons []string
	byReason := map[string][]string{}
	for _, name := range names {
		on := map[string][]string{} // the nodes, by outcome and reason
		var outcomes []string
		for _, n := range nodes {
			word, why := n.outcome(name)
			switch word {
			case "passed":
				continue
			case "":
				word, why = "not run", "not run on this node"
			}
			outcome := "(" + word + "): " + escape(why)
			if on[outcome] == nil {
				outcomes = append(outcomes, outcome)
			}
			on[outcome] = append(on[outcome], n.name)
		}
		for _, outcome := range outcomes {
			reason := strings.Join(on[outcome], ", ") + " " + outcome
			if byReason[reason] == nil {
				reasons = append(reasons, reason)
			}
			byReason[reason] = append(byReason[reason], escape(name))
		}
	}
	if len(reasons) == 0 {
		return
	}
	b.WriteString("\n## What did not pass\n")
	for _, reason := range reasons {
		fmt.Fprintf(b, "\n%s\n\n", reason)
		writeSpecs(b, byReason[reason])
	}
}

// writeSpecs lists specs. Three or more that begin with the same eight words or more are
// below these.
func writeSpecs(b *strings.Builder, specs []string) {
	for len(specs) > 0 {
		same, count := strings.Fields(specs[0]), 1
		for _, spec := range specs[1:] {
			common := commonStart(same, strings.Fields(spec))
			if len(common) < 8 {
				break
			}
			same, count = common, count+1
		}
		if count < 3 {
			fmt.Fprintf(b, "- %s\n", specs[0])
			specs = specs[1:]
			continue
		}
		start := strings.Join(same, " ")
		fmt.Fprintf(b, "- %s …\n", start)
		for _, spec := range specs[:count] {
			fmt.Fprintf(b, "  - %s\n", strings.TrimSpace(strings.TrimPrefix(spec, start)))
		}
		specs = specs[count:]
	}
}

func commonStart(a, b []string) []string {
	for i := range a {
		if i == len(b) || a[i] != b[i] {
			return a[:i]
		}
	}
	return a
}

// passedOnAll is the number of specs that passed on all nodes.
func passedOnAll(nodes []node, names []string) (count int) {
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n node) bool { word, _ := n.outcome(name); return word != "passed" }) {
			count++
		}
	}
	return count
}

// escape keeps text in its cell and literal.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "`", "'", "\n", " ").Replace(text)
}
