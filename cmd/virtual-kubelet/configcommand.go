package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

func newConfigDefaultCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "default",
		Short: "Print a configuration file with all fields, their defaults and what they mean",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd.OutOrStdout(), new(options).newSettings().Default())
		},
	}
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration file, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := new(options).newSettings().Schema()
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), append(text, '\n'))
		},
	}
}

func newConfigViewCommand(getenv func(string) string) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "view",
		Short: "Print the configuration that flags, environment and file result in",
		Long: `Print the configuration that these flags, the environment and the file of --config
result in, and as comments where each value comes from. A provider's configuration that is
in the file is left out, since it may have secrets.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.takeEnvironment(getenv)
			if err := config.Join(o.check()...); err != nil {
				return usageError{err}
			}
			return write(cmd.OutOrStdout(), o.settings.View())
		},
	}
	o.addFlags(command.Flags(), getenv)
	return command
}

func newConfigCheckCommand(getenv func(string) string) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Name all mistakes in a configuration file",
		Long: `Name all mistakes in a configuration file, each in a line with the file, the line in it
and the field, without a cluster: fields that do not exist, values that are wrong or do not
go together, the pools of nodes, and the provider's configuration. Give the flags, too,
with which virtual-kubelet is to run.

Exit status:
  0  there are none
  2  there are some, or the file cannot be read`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && o.configFile != "":
				return usagef("--config and %s are given: name one file", args[0])
			case len(args) == 1:
				o.configFile = args[0]
			case o.configFile == "":
				return usagef("no file is named: give one to check")
			}
			o.takeEnvironment(getenv)
			wrong := o.allMistakes()
			for _, mistake := range wrong {
				fmt.Fprintln(cmd.OutOrStdout(), strings.ReplaceAll(mistake.Error(), "\n", "; "))
			}
			if len(wrong) > 0 {
				return usagef("%s has mistakes: %d", o.configFile, len(wrong))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: no mistakes\n", o.configFile)
			return nil
		},
	}
	o.addFlags(command.Flags(), getenv)
	return command
}

func write(w io.Writer, text []byte) error {
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

// allMistakes returns what is wrong with the configuration, including the node pools and the
// configurations of providers.
func (o *options) allMistakes() []error {
	all := o.check()
	if o.configuration == nil && len(o.configMistakes) > 0 {
		return all // it cannot be read
	}
	if o.poolsFile != "" {
		_, err := newPoolFile(o).Load()
		return append(all, o.atLines(err)...)
	}
	if o.provider == "" {
		all = append(all, o.settings.Mistake(nil, "%s: provider: it is missing: write one of %s, or give --provider", o.configFile, strings.Join(providerNames(), ", ")))
	}
	if wrong := o.providerMistake(); wrong != nil {
		all = append(all, wrong)
	}
	return all
}

// providerMistake returns what is wrong with the provider's configuration, and where it is.
func (o *options) providerMistake() error {
	wrong, err := o.checkProvider()
	if wrong == nil {
		wrong = err
	}
	return o.atProviderConfig(wrong)
}

// atProviderConfig returns what is wrong with the provider's configuration with its place, if it
// is in the file of --config.
func (o *options) atProviderConfig(wrong error) error {
	if wrong == nil {
		return nil
	}
	mistake := o.settings.Mistake([]string{"provider-config"}, "%v", wrong)
	if mistake.Line > 0 {
		mistake.Text = "providerConfig: " + strings.TrimPrefix(mistake.Text, "--provider-config: ")
	}
	return mistake
}

var (
	fieldOfMistake = regexp.MustCompile(`^(?:unknown field ")?([A-Za-z][\w.\[\]-]*)`)
	lineOfMistake  = regexp.MustCompile(`^line (\d+): `)
)

// atLines returns the mistakes in the node pools with the lines where they are.
func (o *options) atLines(err error) []error {
	data, _ := os.ReadFile(o.poolsFile) // the mistake names it if it cannot be read
	if pools, err := poolsIn(data); err == nil {
		data = pools
	}
	all := mistakes(err)
	for i, err := range all {
		text, ours := strings.CutPrefix(err.Error(), o.poolsFile+": ")
		if !ours {
			continue
		}
		line := 0
		if match := lineOfMistake.FindStringSubmatch(text); match != nil {
			line, _ = strconv.Atoi(match[1])
			text = text[len(match[0]):]
		} else if match := fieldOfMistake.FindStringSubmatch(text); match != nil {
			line = settings.LineOf(data, match[1])
		}
		if line > 0 {
			all[i] = settings.Mistake{Origin: settings.Origin{Name: o.poolsFile, Line: line}, Text: text}
		}
	}
	return all
}
