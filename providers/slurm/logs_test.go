package slurm

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// A log comes in parts, and has the time before each line.
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
		"nothing since a time": {logCutter{since: since.Add(time.Hour)}, ""},
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
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
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

// endless is a login host with a log whose last line is far longer than any that is read.
type endless struct {
	lines   string // as many as it was asked for
	written atomic.Int64
}

func (e *endless) Run(_ context.Context, c login.Command) error {
	e.lines = c.Args[2]
	text := "2026-01-01T00:00:01Z one\n2026-01-01T00:00:03Z "
	for range 1 << 14 {
		n, err := io.WriteString(c.Stdout, text)
		if err != nil {
			return err
		}
		e.written.Add(int64(n))
		text = strings.Repeat("x", 1000)
	}
	return nil
}

// The last lines of a log, also of those since a time, are the login host's to find: a
// line of any length is passed on, and not kept.
func TestLastLinesAreNotKept(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	for name, opts := range map[string]api.ContainerLogOpts{
		"of all":       {Tail: 2},
		"since a time": {Tail: 2, SinceTime: since},
		"followed":     {Tail: 2, SinceTime: since, Follow: true},
	} {
		host := &endless{}
		u := &podgroup.Unit{Containers: []podgroup.Container{{Name: "a", Now: podgroup.Run{State: podgroup.Executing}}}}
		log, err := newBackend(Config{}, host).StreamLog(t.Context(), u, "a", opts)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat("x", 10000)
		if opts.SinceTime.IsZero() {
			want = "one\n" + want
		}
		text := make([]byte, len(want))
		if _, err := io.ReadFull(log, text); err != nil || string(text) != want || host.lines != "2" {
			t.Errorf("%s: of the last %s lines, %.20q: %v", name, host.lines, text, err)
		}
		if n := host.written.Load(); n > 1<<20 {
			t.Errorf("%s: %d bytes were read at once", name, n)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
