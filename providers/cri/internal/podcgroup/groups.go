package podcgroup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// leastShares are the CPU shares of what has asked for none.
const leastShares = 2

// Options configure Groups.
type Options struct {
	// Driver says how the runtime makes control groups. It is asked until it has
	// answered without an error. Required.
	Driver func(context.Context) (Driver, error)
	// Root is the group that those of all pods are in: a path such as /pods, or a
	// slice such as pods.slice, for any driver. A kubelet ends what it finds in
	// its own group, /kubepods, and does not know. Required, and valid by
	// ValidRoot.
	Root string
	// Resources are what a pod may use altogether. Required.
	Resources func(*corev1.Pod) *runtimeapi.LinuxContainerResources
}

// Groups are the control groups of the pods of a node. Its methods may be called
// from several goroutines. Make one with New.
type Groups struct {
	options Options
	root    name
	system  system

	mu     sync.Mutex
	driver Driver
	shares map[types.UID]int64 // of the Burstable pods that have a group
}

// system makes and removes control groups.
type system interface {
	// set makes a group, with those that it is in, and limits it.
	set(driver Driver, group name, limits limits) error
	// remove removes a group with all that is in it, if there is one.
	remove(driver Driver, group name) error
	// removeEmpty removes a group if nothing is in it.
	removeEmpty(driver Driver, group name)
}

// limits are what is set for a group. The others than shares count with a period only,
// and are none where they are zero.
type limits struct {
	shares, quota, period, memory int64
}

// New makes Groups. It touches no control group.
func New(o Options) *Groups {
	return &Groups{options: o, root: parseRoot(o.Root), system: host{}, shares: map[types.UID]int64{}}
}

// ValidRoot returns an error of class InvalidInput for a text that cannot be
// Options.Root.
func ValidRoot(text string) error {
	root := parseRoot(text)
	if len(root) == 0 || slices.ContainsFunc(root, func(part string) bool { return part == "" || part == "." || part == ".." }) {
		return errdefs.InvalidInputf("%q is no control group for pods: give a path such as /pods, or a slice such as pods.slice", text)
	}
	return nil
}

// Parent is the group in which the runtime makes those of a pod's sandbox and
// containers, in the form that the runtime's driver needs.
func (g *Groups) Parent(ctx context.Context, pod *corev1.Pod) (string, error) {
	driver, err := g.askDriver(ctx)
	if err != nil {
		return "", err
	}
	return g.root.pod(podspec.QOSClass(pod), pod.UID).path(driver), nil
}

// Set makes the group of a pod, or gives it what the pod may use by now.
func (g *Groups) Set(ctx context.Context, pod *corev1.Pod) error {
	driver, err := g.askDriver(ctx)
	if err != nil {
		return err
	}
	resources, class := g.options.Resources(pod), podspec.QOSClass(pod)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch class {
	case corev1.PodQOSBurstable:
		g.shares[pod.UID] = resources.GetCpuShares()
		err = g.setBurstable(driver)
	case corev1.PodQOSBestEffort:
		err = g.system.set(driver, g.root.of(class), limits{shares: leastShares})
	}
	if err != nil {
		return err
	}
	group := g.root.pod(class, pod.UID)
	if err := g.system.set(driver, group, limitsOf(resources)); err != nil {
		return fmt.Errorf("set up the control group %s: %w", group.path(driver), err)
	}
	return nil
}

// Remove removes the group of a pod of a class of which nothing runs, and those that were there
// for it alone. A group that is not there is no error.
func (g *Groups) Remove(ctx context.Context, uid types.UID, class corev1.PodQOSClass) error {
	driver, err := g.askDriver(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.root.pod(class, uid)
	if err := g.system.remove(driver, group); err != nil {
		return fmt.Errorf("remove the control group %s: %w", group.path(driver), err)
	}
	if _, counted := g.shares[uid]; counted {
		delete(g.shares, uid)
		if len(g.shares) > 0 {
			return g.setBurstable(driver)
		}
	}
	if class != corev1.PodQOSGuaranteed {
		g.system.removeEmpty(driver, g.root.of(class))
	}
	g.system.removeEmpty(driver, g.root)
	return nil
}

// setBurstable gives the Burstable pods together what they ask for, so that those of
// the other classes get what they ask for. The caller holds mu.
func (g *Groups) setBurstable(driver Driver) error {
	var sum int64
	for _, shares := range slices.Collect(maps.Values(g.shares)) {
		sum += shares
	}
	return g.system.set(driver, g.root.of(corev1.PodQOSBurstable), limits{shares: max(sum, leastShares)})
}

func (g *Groups) askDriver(ctx context.Context) (Driver, error) {
	g.mu.Lock()
	driver := g.driver
	g.mu.Unlock()
	if driver != "" {
		return driver, nil
	}
	driver, err := g.options.Driver(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.driver = driver
	return driver, nil
}

func limitsOf(r *runtimeapi.LinuxContainerResources) limits {
	return limits{shares: r.GetCpuShares(), quota: r.GetCpuQuota(), period: r.GetCpuPeriod(), memory: r.GetMemoryLimitInBytes()}
}
