package podgroup_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// scripted is a backend whose reads of logs return these texts, one after the other. After the last one the
// container ends.
type scripted struct {
	listing
	texts *[]string
}

func (s scripted) ReadLog(_ context.Context, u *podgroup.Unit, container string, _ podgroup.LogQuery) (text string, err error) {
	if len(*s.texts) > 0 {
		text, *s.texts = (*s.texts)[0], (*s.texts)[1:]
	}
	if len(*s.texts) == 0 {
		_ = s.w.Exit(u.Owner.Name, container, 0) // which may have been before
	}
	return text, err
}

// A log that is followed has each line once, although each answer begins with lines of the one
// before; and nothing from before the time that the client names, although a service rounds.
func TestFollowedLogHasEachLineOnce(t *testing.T) {
	for name, c := range map[string]struct {
		opts  api.ContainerLogOpts
		texts []string
		want  string
	}{
		"from the beginning": {
			texts: []string{
				"2026-01-01T00:00:01.5Z a\n2026-01-01T00:00:01.75Z b\n2026-01-01T00:00:01.75Z b\n",
				"2026-01-01T00:00:01.5Z a\n2026-01-01T00:00:01.75Z b\n2026-01-01T00:00:01.75Z b\n2026-01-01T00:00:01.75Z c\n2026-01-01T00:00:02Z\n",
				"2026-01-01T00:00:02Z\n2026-01-01T00:00:02.25Z d\n",
				"",
				"2026-01-01T00:00:02.25Z d\n",
			},
			want: "a\nb\nb\nc\n\nd\n",
		},
		"from a time": {
			opts:  api.ContainerLogOpts{SinceTime: time.Date(2026, 1, 1, 0, 0, 1, 5e8, time.UTC)},
			texts: []string{"2026-01-01T00:00:01.25Z a\n2026-01-01T00:00:01.5Z b\nand more\n2026-01-01T00:00:01.75Z c\n"},
			want:  "b\nand more\nc\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, cluster := grouptest.New(0), grouptest.NewCluster("home")
				p, _ := cluster.Start(t, scripted{listing{memory{w}}, &c.texts}, options())
				pod := grouptest.NewPod("a")
				pod.Spec.RestartPolicy = "Never"
				create(t, cluster, p, pod)
				c.opts.Follow = true
				log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", c.opts)
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				if text, err := io.ReadAll(log); err != nil || string(text) != c.want {
					t.Errorf("the log is %q, want %q: %v", text, c.want, err)
				}
			})
		})
	}
}
