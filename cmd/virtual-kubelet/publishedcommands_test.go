//go:build !chosen_providers

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs/cli.md has each command as --help shows it.
func TestPublishedCommands(t *testing.T) {
	root := newRootCommand(func(string) string { return "" })
	root.InitDefaultHelpCmd()
	page := &strings.Builder{}
	page.WriteString("# Commands\n\nWhat `virtual-kubelet COMMAND --help` prints. Each flag of the first one has a field in\n[configuration.md](configuration.md), too.\n")
	describe(page, root)
	compareWithPage(t, "../../docs/cli.md", func([]byte) []byte { return []byte(page.String()) })
}

func describe(page *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	text := c.Long
	if text == "" {
		text = c.Short
	}
	fmt.Fprintf(page, "\n## %s\n\n```\n%s\n\nUsage: %s\n", c.CommandPath(), strings.TrimSpace(text), c.UseLine())
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	var shared []string // with the root, which has their meaning
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if known := c.Root().Flag(f.Name); c.HasParent() && known != nil && known.Usage == f.Usage && known.DefValue == f.DefValue {
			shared = append(shared, "--"+f.Name)
		} else {
			own.AddFlag(f)
		}
	})
	fmt.Fprintf(page, "\n%s", own.FlagUsages())
	if len(shared) > 0 {
		fmt.Fprintf(page, "\nAs of %s: %s\n", c.Root().Name(), strings.Join(shared, ", "))
	}
	page.WriteString("```\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			describe(page, sub)
		}
	}
}
