package settings

import (
	"bytes"
	"fmt"
	"strings"
)

// Markdown returns a table of the fields, and one of the settings that have none.
func (t *Table) Markdown() []byte {
	var b, without bytes.Buffer
	b.WriteString("| field | flag | default | meaning |\n|---|---|---|---|\n")
	for _, s := range t.Settings {
		name := "`--" + s.Flag + "`"
		if s.Flag == "" {
			name = "`$" + s.Env + "`"
		}
		if s.Field == "" {
			fmt.Fprintf(&without, "| %s | %s |\n", name, s.OnlyFlag)
			continue
		}
		copied := s
		copied.Value = newValue(s.Value)
		copied.reset()
		preset := "`" + copied.yaml() + "`"
		if copied.isEmpty() {
			preset = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Field, name, preset, strings.ReplaceAll(t.Describe(s), "|", `\|`))
	}
	b.WriteString("\nWithout a field:\n\n| setting | because |\n|---|---|\n")
	b.Write(without.Bytes())
	return b.Bytes()
}
