package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

func newTableCommand() *cobra.Command {
	var out, document string
	command := &cobra.Command{
		Use:   "table FILE.json...",
		Short: "Make the tables of earlier runs with --out again",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, path := range args {
				result, err := report.Load(path)
				if err != nil {
					return err
				}
				name := strings.TrimSuffix(filepath.Base(path), ".json")
				if out != "" {
					if err := result.Save(out, name); err != nil {
						return fmt.Errorf("--out: %w", err)
					}
				}
				if document != "" {
					if err := insert(document, name, result); err != nil {
						return fmt.Errorf("--into: %w", err)
					}
				}
				if err := result.Text(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&out, "out", "", "directory for the tables as Markdown, as pictures and as JSON (default: none)")
	flags.StringVar(&document, "into", "", "Markdown document in which the tables go between <!-- NAME --> and <!-- end NAME -->, with pictures in a directory of the document's name; tables without a place in it are left out (default: none)")
	return command
}

// insert replaces a table in a document, and its picture.
func insert(document, name string, result report.Result) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- end %s -->", name)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found {
		return nil
	}
	if !ended {
		return fmt.Errorf("%s has no %q", document, end)
	}
	pictures := strings.TrimSuffix(document, filepath.Ext(document))
	var picture, table bytes.Buffer
	if err := result.SVG(&picture); err != nil {
		return err
	}
	if err := result.Markdown(&table); err != nil {
		return err
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".svg"), picture.Bytes(), 0o644); err != nil {
		return err
	}
	link := fmt.Sprintf("![%s](%s/%s.svg)\n", result.Title, filepath.Base(pictures), name)
	return os.WriteFile(document, []byte(before+begin+"\n"+table.String()+"\n"+link+"\n"+end+after), 0o644)
}
