package podenv

import (
	"fmt"
	"strings"
)

// FileValue returns the value of a key in the text of an environment file, as a
// fileKeyRef reads it (KEP-3721): lines KEY='value', with nothing around the equals
// sign, values in single quotes that may go over lines and have no escapes, empty
// lines, and comments that begin with #. A key without a value, or with an empty
// one, is not there. An error is a line before the key that is none of these.
func FileValue(text, key string) (value string, found bool, err error) {
	for line := 1; text != ""; {
		first, rest, _ := strings.Cut(text, "\n")
		entry := strings.TrimLeft(strings.TrimSuffix(first, "\r"), " \t")
		if entry == "" || entry[0] == '#' {
			text, line = rest, line+1
			continue
		}
		name, assigned, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.TrimRight(name, " \t") != name {
			return "", false, fmt.Errorf("line %d is no KEY='value'", line)
		}
		if assigned == "" || assigned[0] == ' ' || assigned[0] == '\t' { // an empty value, to a shell
			if name == key {
				return "", false, nil
			}
			text, line = rest, line+1
			continue
		}
		if assigned[0] != '\'' {
			return "", false, fmt.Errorf("line %d: the value is not in single quotes", line)
		}
		quoted := text[strings.Index(text, "='")+2:]
		value, after, closed := strings.Cut(quoted, "'")
		if !closed {
			return "", false, fmt.Errorf("line %d: the single quote is not closed", line)
		}
		tail, rest, _ := strings.Cut(after, "\n")
		if tail = strings.TrimLeft(strings.TrimSuffix(tail, "\r"), " \t"); tail != "" && tail[0] != '#' {
			return "", false, fmt.Errorf("line %d: there is more after the closing quote", line)
		}
		if name == key {
			return value, value != "", nil
		}
		text, line = rest, line+strings.Count(value, "\n")+1
	}
	return "", false, nil
}
