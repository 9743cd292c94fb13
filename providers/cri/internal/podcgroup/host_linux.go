package podcgroup

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// host is the machine: version 1 or 2 of control groups, by their file system or by
// systemd, as runc does it.
type host struct{}

// setting is held while groups are set, also by other nodes of the process: the library keeps what it
// finds of the machine in variables.
var setting sync.Mutex

func (host) set(driver Driver, group name, l limits) error {
	setting.Lock()
	defer setting.Unlock()
	config := configOf(driver, group)
	*config.Resources = resourcesOf(l)
	m, err := manager.New(config)
	if err != nil {
		return err
	}
	const nobody = -1 // no process is put into the group
	if err := m.Apply(nobody); err != nil {
		return err
	}
	err = m.Set(config.Resources)
	if err != nil && config.Resources.Memory > 0 { // which may be in use: the rest holds all the same
		config.Resources.Memory, config.Resources.MemoryCheckBeforeUpdate = 0, false
		err = errors.Join(err, m.Set(config.Resources))
	}
	return err
}

func (host) remove(driver Driver, group name) error {
	m, err := manager.New(configOf(driver, group))
	if err != nil {
		return err
	}
	return m.Destroy()
}

func (host) removeEmpty(driver Driver, group name) {
	if driver == Systemd {
		return // slices that hold nothing are systemd's to remove
	}
	m, err := manager.New(configOf(driver, group))
	if err != nil {
		return
	}
	for _, path := range m.GetPaths() {
		_ = os.Remove(path)
	}
}

// EndsAsAWhole reports whether a container that is out of memory can end as a whole on this machine: whether its control
// groups are those of version 2 alone, and limit memory, which some machines are started without.
func EndsAsAWhole() bool {
	return cgroups.IsCgroup2UnifiedMode() && limitsMemory(unifiedRoot)
}

// LimitsSwap reports whether the control groups of this machine, of version 2 alone, can keep containers out of swap.
func LimitsSwap() bool {
	return cgroups.IsCgroup2UnifiedMode() && limitsSwap(unifiedRoot)
}

// limitsSwap looks below the root, which has no limits itself.
func limitsSwap(root string) bool {
	files, err := filepath.Glob(filepath.Join(root, "*", "memory.swap.max"))
	return err == nil && len(files) > 0
}

const unifiedRoot = "/sys/fs/cgroup"

func limitsMemory(root string) bool {
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}

// configOf is the group as the library wants it.
func configOf(driver Driver, group name) *cgroups.Cgroup {
	config := &cgroups.Cgroup{Resources: skipDevices()}
	whole := group.path(driver)
	if driver != Systemd {
		config.Path = whole
		return config
	}
	parent, base := path.Split(whole)
	config.Systemd, config.Name, config.Parent = true, base, path.Base(parent)
	if parent == "/" {
		config.Parent = "-.slice"
	}
	return config
}

func skipDevices() *cgroups.Resources {
	return &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
}

// unlimited is what the library writes for a limit that there is not.
const unlimited = -1

func resourcesOf(l limits) cgroups.Resources {
	r := *skipDevices()
	if cgroups.IsCgroup2UnifiedMode() {
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(uint64(l.shares))
	} else {
		r.CpuShares = uint64(l.shares)
	}
	if l.period > 0 { // the group of a pod, which may have had limits before
		r.CpuPeriod, r.CpuQuota, r.Memory = uint64(l.period), cmp.Or(l.quota, unlimited), cmp.Or(l.memory, unlimited)
		// Some may be of no container, as that of files in memory. Version 1 refuses by itself.
		r.MemoryCheckBeforeUpdate = true
	}
	return r
}
