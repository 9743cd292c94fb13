package podgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// scripted is a backend whose reads of logs return these texts, one after the other. After the last one the
// container ends.
type scripted struct {
	listing
	texts *[]string
}

func (s scripted) ReadLog(_ context.Context, u *podgroup.Unit, container string, q podgroup.LogQuery) (text string, err error) {
	if len(*s.texts) > 0 {
		text, *s.texts = (*s.texts)[0], (*s.texts)[1:]
	}
	if lines := slices.Collect(strings.Lines(text)); q.Tail > 0 {
		text = strings.Join(lines[max(0, len(lines)-q.Tail):], "")
	}
	if len(*s.texts) == 0 {
		_ = s.w.Exit(u.Owner.Name, container, 0) // which may have been before
	}
	return text, err
}

// waiting is a backend whose containers all wait for the same reason.
type waiting struct {
	listing
	reason string
}

func (b waiting) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := b.listing.List(ctx, filter, page)
	for _, u := range found.Units {
		for i := range u.Containers {
			u.Containers[i].Now = podgroup.Run{Reason: b.reason}
		}
	}
	return found, err
}

// In place of the log of a container that waits there is the reason, as in its status.
func TestLogOfAContainerThatWaits(t *testing.T) {
	for reason, want := range map[string]string{"": "ContainerCreating", "PodInitializing": "PodInitializing"} {
		synctest.Test(t, func(t *testing.T) {
			cluster := grouptest.NewCluster("home")
			p, _ := cluster.Start(t, waiting{listing{memory{grouptest.New(0)}}, reason}, options())
			pod := grouptest.NewPod("a")
			create(t, cluster, p, pod)
			time.Sleep(time.Minute) // the unit is as listed, not as created
			_, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
			if want := `container "main" in pod "a" is waiting to start: ` + want; !errdefs.IsInvalidInput(err) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			if state := statusOf(t, p, pod).ContainerStatuses[0].State.Waiting; state == nil || state.Reason != want {
				t.Errorf("the status has %v, want %s", state, want)
			}
		})
	}
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
		"last lines of what has printed nothing yet": {
			opts:  api.ContainerLogOpts{Tail: 1},
			texts: []string{"", "2026-01-01T00:00:01Z a\n2026-01-01T00:00:02Z b\n", ""},
			want:  "a\nb\n",
		},
		"so many bytes": {
			opts:  api.ContainerLogOpts{LimitBytes: 3},
			texts: []string{"2026-01-01T00:00:01Z a\n", "2026-01-01T00:00:01Z a\n2026-01-01T00:00:02Z bcd\n"},
			want:  "a\nb",
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

// The last seconds are those before the client has asked, not before each read of the log.
func TestFollowedLogOfTheLastSeconds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("a")
		pod.Spec.RestartPolicy = "Never"
		create(t, c, p, pod)
		time.Sleep(time.Minute)
		log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Follow: true, SinceSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		time.Sleep(100 * time.Millisecond)
		if err := w.Print(pod.Name, "main", "right after the first read"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := w.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(log); err != nil || string(text) != "right after the first read\n" {
			t.Errorf("the log is %q, %v", text, err)
		}
	})
}

// A log that is read seldom ends with its run, though others have begun since: with the rest of it, if the
// service still has that, and with nothing of another one.
func TestFollowedLogEndsWithItsRun(t *testing.T) {
	for runs, want := range map[int]string{1: "container main started\nlast line of run 1\n", 2: "container main started\n"} {
		inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
			pod := grouptest.NewPod("a")
			create(t, c, p, pod)
			time.Sleep(5 * time.Second)
			log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			time.Sleep(time.Second) // what is there has been read by the provider, and by nobody else
			for run := range runs {
				err := errors.Join(w.Print(pod.Name, "main", fmt.Sprint("last line of run ", run+1)), w.Exit(pod.Name, "main", 0))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			if text, err := io.ReadAll(log); err != nil || string(text) != want {
				t.Errorf("after %d runs the log of the first is %q: %v", runs, text, err)
			}
		})
	}
}

// However many clients follow logs, the calls stay within the account's quota, and all of them get
// what is printed.
func TestManyFollowedLogs(t *testing.T) {
	const clients, quota = 60, 500 // each reads 30 times a minute, if it can
	inBubble(t, func(o *podgroup.Options) {
		o.Budget = podgroup.NewBudget(map[podgroup.Action]int{podgroup.ActionLog: quota})
	}, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		w.SetQuota(string(podgroup.ActionLog), quota)
		pod := grouptest.NewPod("a")
		pod.Spec.RestartPolicy = "Never"
		create(t, c, p, pod)
		time.Sleep(5 * time.Second)
		want := "container main started\n"
		var following sync.WaitGroup
		logs := make([]string, clients)
		for i := range logs {
			following.Go(func() {
				log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Follow: true})
				if err != nil {
					t.Error(err)
					return
				}
				defer log.Close()
				text, err := io.ReadAll(log)
				if err != nil {
					t.Error(err)
				}
				logs[i] = string(text)
			})
		}
		for i := range 10 {
			time.Sleep(30 * time.Second)
			line := fmt.Sprint("line ", i)
			if err := w.Print(pod.Name, "main", line); err != nil {
				t.Fatal(err)
			}
			want += line + "\n"
		}
		if err := w.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		following.Wait()
		for i, got := range logs {
			if got != want {
				t.Errorf("client %d has %q", i, got)
			}
		}
		if n := w.Refused(); n != 0 || w.Calls(string(podgroup.ActionLog)) < 5*quota/2 {
			t.Errorf("%d of %d calls were beyond the quota", n, w.Calls(string(podgroup.ActionLog)))
		}
	})
}
