package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answering is a Runner with one answer to lists.
type answering string

func (a answering) Run(_ context.Context, c login.Command) error {
	_, err := io.WriteString(c.Stdout, "now 2000\n"+string(a))
	return err
}

// A file system that is not mounted is no reason to show pods as gone.
func TestListsWithoutDirectories(t *testing.T) {
	const missing = "missing\n"
	mine := map[string]string{"ClusterName": "test"}
	job := func(state, cluster string) string {
		return fmt.Sprintf("row 7|%s|None|1000|1001|1100|n1|one|{\"UID\":\"u\",\"ClusterName\":%q}\n", state, cluster)
	}
	for name, c := range map[string]struct {
		list   string
		fails  bool
		units  int
		denies bool
	}{
		"empty":                 {},
		"empty, and a job runs": {list: job("RUNNING", "test"), fails: true},
		"empty, and a job of another cluster runs": {list: job("RUNNING", "another"), units: 1}, // the caller sees by its tags whose it is
		"empty, and a job is in the queue":         {list: job("PENDING", "test"), units: 1},
		"missing":                                  {list: missing, denies: true},
		"missing, and a job runs":                  {list: job("RUNNING", "test") + missing, fails: true},
		"missing, and a job is in the queue":       {list: job("PENDING", "test") + missing, fails: true},
		"missing, and a job has ended":             {list: job("COMPLETED", "test") + missing, denies: true},
		"missing, and another cluster's job runs":  {list: job("RUNNING", "another") + missing, denies: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(Config{Root: "pods"}, answering(c.list))
			page, err := b.List(t.Context(), mine, "")
			if (err != nil) != c.fails || c.fails && !errdefs.IsUnavailable(err) || len(page.Units) != c.units {
				t.Errorf("the units are %v, error %v", page.Units, err)
			}
			if err := b.ConfirmEmpty(t.Context(), "7", grouptest.NewPod("one")); !c.fails && (err != nil) != c.denies {
				t.Errorf("that there are no units is confirmed with %v", err)
			}
		})
	}
}

// mounted is a node with directories on a file system that can be unmounted, and a Slurm whose jobs
// never begin.
type mounted struct {
	*testing.T
	home  *grouptest.Cluster
	p     nodeutil.Provider
	root  string
	shell *login.Shell
}

func newMounted(t *testing.T) *mounted {
	dir := t.TempDir()
	m := &mounted{T: t, home: grouptest.NewCluster("home"), root: filepath.Join(dir, "nfs", "pods")}
	m.shell = &login.Shell{Environment: map[string]string{"HOME": dir, "PATH": dir + ":/usr/bin:/bin"}}
	for name, script := range map[string]string{"squeue": "", "scancel": "", "sbatch": "echo 7"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)) // #nosec G306 -- a program
	}
	must(t, os.Mkdir(filepath.Dir(m.root), 0o700))
	m.start()
	return m
}

// start has another process begin.
func (m *mounted) start() {
	c := Config{Cluster: "test", Root: m.root, Runtime: RuntimeNone}
	must(m.T, c.complete())
	b := newBackend(c, m.shell)
	m.p, _ = m.home.Start(m.T, b, b.options())
}

func (m *mounted) create(name string) (*corev1.Pod, error) {
	pod := grouptest.NewPod(name)
	pod.Spec.Containers[0].Command = []string{"true"}
	m.home.SetPod(pod)
	err := m.p.CreatePod(m.Context(), pod)
	if err == nil {
		status, err := m.p.GetPodStatus(m.Context(), pod.Namespace, pod.Name)
		must(m.T, err)
		pod = pod.DeepCopy()
		pod.Status = *status
		m.home.SetPod(pod)
	}
	return pod, err
}

func (m *mounted) list(want int) {
	m.Helper()
	time.Sleep(2 * time.Minute) // what was created or listed before is forgotten
	pods, err := m.p.GetPods(m.Context())
	if want < 0 && !errdefs.IsUnavailable(err) || want >= 0 && (err != nil || len(pods) != want) {
		m.Fatalf("the list has %d pods, error %v", len(pods), err)
	}
}

// The directory of all pods is missed while there are pods, also by a process that has never seen it, and
// made by a creation while there are none.
func TestDirectoryThatIsUnmounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounted(t)
		m.list(0) // nothing was ever created here
		one, err := m.create("one")
		must(t, err)
		m.list(1)

		elsewhere := filepath.Join(filepath.Dir(filepath.Dir(m.root)), "unmounted")
		must(t, os.Rename(m.root, elsewhere))
		for range 2 {
			for range missingAgain + 1 {
				m.list(-1)
			}
			if _, err := m.create("two"); err == nil {
				t.Fatal("a pod is created where there is no file system")
			}
			if _, err := os.Stat(m.root); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the directory of all pods is made while its file system is not mounted, error %v", err)
			}
			m.home.RemovePod(grouptest.NewPod("two"))
			m.start()
		}
		must(t, os.Rename(elsewhere, m.root))
		m.list(1)

		// Without pods it may go.
		m.home.RemovePod(one)
		must(t, os.RemoveAll(m.root))
		for range missingAgain {
			m.list(0)
		}
		_, err = m.create("three")
		must(t, err)
		m.list(1)
	})
}

// A process that goes on has the directory made again, too.
func TestDirectoryThatGoesWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounted(t)
		one, err := m.create("one")
		must(t, err)
		m.list(1)
		m.home.RemovePod(one)
		must(t, os.RemoveAll(m.root))
		for range missingAgain {
			m.list(0)
		}
		_, err = m.create("two")
		must(t, err)
		m.list(1)
	})
}
