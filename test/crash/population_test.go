//go:build integration || containers

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// population is the pods of a test: those of now, and all that there have been.
type population struct {
	plan
	t       *testing.T
	random  *rand.Rand
	machine machine
	node    string
	ns      string
	image   string
	dir     string // of the file in which containers say that they start

	mu        sync.Mutex
	all       map[types.UID]*member
	brokenOff map[container]sets.Set[string] // the IDs of the starts that the runtime broke off
}

// member is a pod that was created.
type member struct {
	*kind
	pod     string
	slot    int
	deleted bool // it was asked to go
	// brokenOff counts the starts of containers that the runtime broke off. Whether
	// their commands ran cannot be known, so each counts as a failed run, as in a
	// kubelet: a pod that is never restarted fails, others start the container again.
	brokenOff map[string]int
	// lost reports that the pod's machine was killed. One that is never restarted fails then, if
	// it has not ended before; others run once more.
	lost bool
}

// settled reports whether the pod has reached its last phase.
func (m *member) settled(pod *corev1.Pod) bool {
	if m.mayFail() && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded) {
		return true
	}
	return pod.Status.Phase == m.ends && (m.ends != corev1.PodRunning || isReady(pod))
}

func newPopulation(t *testing.T, random *rand.Rand, node string, m machine, how plan) *population {
	t.Helper()
	parent := os.TempDir()
	if how.noHostPath {
		parent = "/run"
	}
	dir, err := os.MkdirTemp(parent, "crash-starts-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// For containers of all users.
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o666))
	must(t, os.Chmod(filepath.Join(dir, "file"), 0o666))
	must(t, os.Chmod(dir, 0o755))
	return &population{
		plan: how, t: t, random: random, machine: m, node: node, ns: newNamespace(t), image: m.image(t), dir: dir,
		all: map[types.UID]*member{}, brokenOff: map[container]sets.Set[string]{},
	}
}

func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crash-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the default service account exists", func() (left []string) {
		if _, err := client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			left = append(left, err.Error())
		}
		return left
	})
	return ns.Name
}

// member returns what is known of a pod, a copy.
func (p *population) member(uid types.UID) member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.all[uid]; m != nil {
		return p.copyOf(uid)
	}
	return member{kind: &kind{name: "unknown"}}
}

// members returns copies of all.
func (p *population) members() map[types.UID]member {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[types.UID]member{}
	for uid := range p.all {
		all[uid] = p.copyOf(uid)
	}
	return all
}

// copyOf copies a member with what is known of it by now. The caller holds mu.
func (p *population) copyOf(uid types.UID) member {
	m := *p.all[uid]
	m.brokenOff = map[string]int{}
	for c, ids := range p.brokenOff {
		if c.uid == uid {
			m.brokenOff[c.name] = ids.Len()
		}
	}
	return m
}

// lose records that the machine of a pod will be killed. It returns false for one that is to be
// left alone.
func (p *population) lose(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.all[uid]
	if m == nil || m.lost || m.slot < p.kept {
		return false
	}
	m.lost = true
	return true
}

// recordBrokenOff asks the machine which starts were broken off, and remembers them.
func (p *population) recordBrokenOff(ctx context.Context) error {
	starts, err := p.machine.brokenOff(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range starts {
		if p.brokenOff[c] == nil {
			p.brokenOff[c] = sets.New[string]()
		}
		p.brokenOff[c].Insert(id)
	}
	return nil
}

// fill creates all pods. The first ones, which stay, are of those kinds that run
// for ever.
func (p *population) fill() {
	p.t.Helper()
	var lasting []*kind
	for i := range kinds {
		if kinds[i].ends == corev1.PodRunning {
			lasting = append(lasting, &kinds[i])
		}
	}
	for slot := range p.size {
		k := p.anyKind()
		if slot < p.kept {
			k = lasting[slot%len(lasting)]
		}
		p.create(slot, k)
	}
}

func (p *population) anyKind() *kind { return &kinds[p.random.IntN(len(kinds))] }

// act does something to a pod that somebody does to pods: any but those that
// are kept.
func (p *population) act() {
	p.t.Helper()
	slot := p.kept + p.random.IntN(p.size-p.kept)
	what, k := p.random.IntN(10), p.anyKind()
	pod, err := client.CoreV1().Pods(p.ns).Get(p.t.Context(), podName(slot), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.create(slot, k)
	case err != nil:
		p.t.Fatal(err)
	case what < 6:
		p.delete(pod, nil)
	case what < 8:
		p.delete(pod, new(int64))
	default: // as when a node is given up: the next of a StatefulSet comes at once
		p.delete(pod, new(int64))
		p.create(slot, k)
	}
}

func podName(slot int) string { return fmt.Sprintf("pod-%d", slot) }

func (p *population) create(slot int, k *kind) {
	p.t.Helper()
	p.mu.Lock() // so that nobody sees a pod that is not known
	defer p.mu.Unlock()
	pod, err := client.CoreV1().Pods(p.ns).Create(p.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(slot), Labels: map[string]string{"kind": k.name}},
		Spec:       k.podSpec(p),
	}, metav1.CreateOptions{})
	must(p.t, err)
	p.all[pod.UID] = &member{kind: k, pod: pod.Name, slot: slot}
}

// delete deletes a pod within so many seconds, or within its own grace period.
func (p *population) delete(pod *corev1.Pod, grace *int64) {
	p.t.Helper()
	p.mu.Lock()
	p.all[pod.UID].deleted = true
	p.mu.Unlock()
	err := client.CoreV1().Pods(p.ns).Delete(p.t.Context(), pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.t.Fatal(err)
	}
}

// deleteAll deletes all pods that are left.
func (p *population) deleteAll() {
	p.t.Helper()
	for _, pod := range p.list(p.t.Context()) {
		p.delete(&pod, nil)
	}
}

func (p *population) list(ctx context.Context) []corev1.Pod {
	p.t.Helper()
	list, err := client.CoreV1().Pods(p.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			p.t.Error(err)
		}
		return nil
	}
	return list.Items
}

// container is one of the containers of a pod.
type container struct {
	uid  types.UID
	name string
}

// starts counts how often containers have started.
func (p *population) starts() map[container]int {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.dir, "file"))
	must(p.t, err)
	count := map[container]int{}
	for line := range strings.Lines(string(content)) {
		if uid, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			count[container{types.UID(uid), name}]++
		}
	}
	return count
}

// unsettled are the pods that are not yet where they should end, with why.
func (p *population) unsettled() []string {
	p.t.Helper()
	var left []string
	starts := p.starts()
	for _, pod := range p.list(p.t.Context()) {
		m := p.member(pod.UID)
		if m.deleted {
			left = append(left, fmt.Sprintf("%s %s (%s) was deleted, and is there: %s", m.name, pod.Name, pod.UID, stateOf(&pod)))
			continue
		}
		if !m.settled(&pod) {
			left = append(left, fmt.Sprintf("%s %s (%s) is not yet %s: %s", m.name, pod.Name, pod.UID, m.ends, stateOf(&pod)))
		}
		for _, s := range pod.Status.ContainerStatuses {
			// It runs before its shell, on a busy machine, has written that down.
			if n := starts[container{pod.UID, s.Name}]; s.State.Running != nil && n < m.timesStarted(s.Name) && !m.lost && len(m.brokenOff) == 0 {
				left = append(left, fmt.Sprintf("%s of %s %s (%s) has written down %d starts: %s", s.Name, m.name, pod.Name, pod.UID, n, stateOf(&pod)))
			}
		}
	}
	return left
}

// checkEnds sees whether all pods that are left are where they should be, and
// have got there as they should.
func (p *population) checkEnds() {
	p.t.Helper()
	starts, pods := p.starts(), p.list(p.t.Context())
	must(p.t, p.recordBrokenOff(p.t.Context()))
	for _, pod := range pods {
		m := p.member(pod.UID)
		if len(m.brokenOff) > 0 {
			p.t.Logf("the runtime broke off starts of %s %s (%s): %v: %s", m.name, pod.Name, pod.UID, m.brokenOff, stateOf(&pod))
			continue // checkStarts has more
		}
		if m.lost {
			continue
		}
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			want := m.timesStarted(s.Name)
			if n := starts[container{pod.UID, s.Name}]; n != want || int(s.RestartCount) != want-1 {
				p.t.Errorf("%s of %s %s (%s) was started %d times, and restarted %d times by its status; want %d and %d",
					s.Name, m.name, pod.Name, pod.UID, n, s.RestartCount, want, want-1)
			}
			if ended := s.State.Terminated; ended != nil && ended.ExitCode != m.exit[s.Name] {
				p.t.Errorf("%s of %s %s (%s) ended with %d, want %d: %+v", s.Name, m.name, pod.Name, pod.UID, ended.ExitCode, m.exit[s.Name], ended)
			}
		}
	}
}

// checkStarts sees whether any container was started more often than it may.
func (p *population) checkStarts() {
	p.t.Helper()
	starts := p.starts()
	must(p.t, p.recordBrokenOff(p.t.Context()))
	members := p.members()
	for c, n := range starts {
		m, ok := members[c.uid]
		if !ok {
			p.t.Errorf("a container %s was started of a pod %s that there never was", c.name, c.uid)
			continue
		}
		if most := m.mostStarts(c.name); n > most {
			p.t.Errorf("%s of %s %s (%s) was started %d times, want %d at most", c.name, m.name, m.pod, c.uid, n, most)
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// stateOf sums up a pod for people.
func stateOf(pod *corev1.Pod) string {
	words := []string{string(pod.Status.Phase)}
	if pod.DeletionTimestamp != nil {
		words = append(words, "terminating")
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		words = append(words, fmt.Sprintf("%s#%d=%s", s.Name, s.RestartCount, s.State.String()))
	}
	return strings.Join(words, " ")
}

// eventually polls until nothing is left to wait for.
func eventually(t *testing.T, what string, left func() []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		things := left()
		if len(things) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s; still:\n%s", what, strings.Join(things, "\n"))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
