package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Output is cut into lines in the same way however it comes.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for text, want := range map[string][]string{
		"a\nb\n":           {"F a", "F b"},
		"a":                {"P a"},
		"\n":               {"F "},
		"":                 nil,
		long + "\n":        {"F " + long},
		long + "y\n":       {"P " + long, "F y"},
		long + long:        {"P " + long, "P " + long},
		long + "y\nz\n":    {"P " + long, "F y", "F z"},
		"a\r\n" + "\x00\n": {"F a\r", "F \x00"},
	} {
		for _, size := range []int{1, 7, maxLine, maxLine + 1, 1 << 20} {
			path := filepath.Join(t.TempDir(), "a", "log")
			log, err := openLog(path)
			if err != nil {
				t.Fatal(err)
			}
			l := lines{log: log, stream: "stdout"}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				l.add([]byte(rest[:n]))
				rest = rest[n:]
			}
			l.end()
			data, _ := os.ReadFile(path)
			var got []string
			for line := range strings.Lines(string(data)) {
				_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " stdout ")
				got = append(got, line)
			}
			if strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("%.20q in pieces of %d: %.60q", text, size, got)
			}
		}
	}
}

// Times of lines do not go back with the clock. A time of the clock that never goes back would
// be compared by that.
func TestLogTimesDoNotGoBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	log.write("stdout", nil, true)
	if log.last != log.last.Round(0) {
		t.Errorf("the time of the last line is %v", log.last)
	}
	before := time.Now().Add(time.Hour).Round(0) // set back by an hour
	log.last = before
	log.write("stdout", nil, true)
	if log.last != before {
		t.Errorf("after %v comes %v", before, log.last)
	}
}
