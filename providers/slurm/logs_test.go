package slurm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lastlines"
)

// A log comes in parts, and has the time before each line. What a client wants of it is decided
// here where the last lines are wanted of those since a time.
func TestLogCutter(t *testing.T) {
	const log = "2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two\n2026-01-01T00:00:03.5Z three\n2026-01-01T00:00:04Z \n2026-01-01T00:00:05Z five\n"
	since := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	for name, c := range map[string]struct {
		cut  logCutter
		want string
	}{
		"all":                  {logCutter{}, "one\ntwo\nthree\n\nfive\n"},
		"with times":           {logCutter{timestamps: true}, log},
		"since a time":         {logCutter{since: since}, "two\nthree\n\nfive\n"},
		"the last of those":    {logCutter{since: since, last: &lastlines.Writer{Lines: 3}}, "three\n\nfive\n"},
		"fewer than wanted":    {logCutter{since: since, last: &lastlines.Writer{Lines: 9}}, "two\nthree\n\nfive\n"},
		"nothing since a time": {logCutter{since: since.Add(time.Hour), last: &lastlines.Writer{Lines: 2}}, ""},
	} {
		var out strings.Builder
		cut := c.cut
		cut.out = &out
		for part := log; part != ""; {
			n := min(7, len(part))
			if _, err := cut.Write([]byte(part[:n])); err != nil {
				t.Fatal(err)
			}
			part = part[n:]
		}
		if err := cut.flush(); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, want %q: %v", name, out.String(), c.want, err)
		}
	}
}

// A line that has no end is not kept.
func TestLineWithoutEnd(t *testing.T) {
	part := strings.Repeat("x", 1000)
	for since, want := range map[int]int{1: 10_000, 2: 0} {
		var out strings.Builder
		cut := logCutter{out: &out, since: time.Date(2026, 1, since, 0, 0, 0, 0, time.UTC)}
		for _, text := range append([]string{"2026-01-01T00:00", ":01Z "}, slices.Repeat([]string{part}, 10)...) {
			if _, err := cut.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if out.Len() != want || len(cut.rest) > 0 {
			t.Errorf("of 10000 bytes %d are passed on, and %d kept", out.Len(), len(cut.rest))
		}
		if _, err := cut.Write([]byte("\n2026-01-03T00:00:00Z next\n")); err != nil || !strings.HasSuffix("\n"+out.String(), "\nnext\n") {
			t.Errorf("the line behind it is not in %q, error %v", out.String()[max(0, out.Len()-20):], err)
		}
	}
}
