// Command table makes one Markdown table of the results of several nodes:
//
//	table -results DIR -expected DIR -specs FILE -out FILE NODE...
//
// The results of a node are in DIR/NODE/junit.xml, as command run writes them; the
// reasons for what does not pass are in expected-failures-NODE.txt of the other
// directory. The page names the specs that did not pass; all others of FILE did.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/specs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	results := flags.String("results", "bin/conformance/results", "directory with the results, a directory a node")
	expected := flags.String("expected", "conformance", "directory with the files expected-failures-NODE.txt")
	list := flags.String("specs", "conformance/specs.txt", "file with the specs that the nodes are measured by")
	out := flags.String("out", "", "file to write (required)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() == 0 {
		return errors.New("usage: table -results DIR -expected DIR -specs FILE -out FILE NODE [NODE...]")
	}
	var nodes []node
	for _, name := range flags.Args() {
		n, err := readNode(name, *results, *expected)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	names, err := specs.Names(*list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, markdown(nodes, names), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// node has the results of one node.
type node struct {
	name  string
	suite *junit.Suite
	cases map[string]junit.Case
	known map[string]specs.Known
}

func readNode(name, results, expected string) (n node, err error) {
	n = node{name: name, cases: map[string]junit.Case{}}
	if n.suite, err = junit.Read(filepath.Join(results, name, "junit.xml")); err != nil {
		return n, fmt.Errorf("%w: run \"make conformance NODE=%s\" first", err, name)
	}
	for _, c := range n.suite.Cases {
		n.cases[c.Name] = c
	}
	n.known, err = specs.ReadKnown(filepath.Join(expected, "expected-failures-"+name+".txt"))
	return n, err
}

// outcome says in a word what became of a spec, and why if it did not pass.
func (n *node) outcome(spec string) (word, why string) {
	c, ran := n.cases[spec]
	known := n.known[spec]
	switch {
	case !ran:
		return "", ""
	case c.Failure == nil && c.Skipped == nil:
		return "passed", ""
	case c.Failure != nil:
		return "**failed**", reason(known.Reason, c.Failure.Text)
	case known.Kind == specs.LeftOut:
		return "left out", known.Reason
	default:
		return "skipped", reason(known.Reason, c.Skipped.Text)
	}
}

// reason is the one that is known, and else what the suite says.
func reason(known, reported string) string {
	if known != "" {
		return known
	}
	return reported
}
