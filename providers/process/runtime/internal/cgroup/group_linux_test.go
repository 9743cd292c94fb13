package cgroup

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestMounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	text := `30 23 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 23 0:28 / /sys/fs/cgroup/systemd rw - cgroup none rw,xattr,name=systemd
33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
34 23 0:30 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
35 23 0:31 / /home rw - ext4 /dev/sda1 rw
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := mounted(path)
	want := map[string]string{
		"memory": "/sys/fs/cgroup/memory", "cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
		"name=systemd": "/sys/fs/cgroup/systemd", "unified": "/sys/fs/cgroup/unified",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// A group on an ordinary file system shows what is written and read where.
func TestFiles(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	g := Group{"memory": v1, "cpu": v1, unified: v2}
	for _, path := range []string{
		v1 + "/memory.limit_in_bytes", v1 + "/cpu.shares", v1 + "/cpu.cfs_quota_us", v1 + "/cpu.cfs_period_us",
		v2 + "/memory.max", v2 + "/cpu.weight", v2 + "/cpu.max", v2 + "/memory.high", v2 + "/memory.oom.group", v2 + "/pids.max",
	} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := g.Limit(Limits{CPUShares: 1024, CPUQuota: 50000, CPUPeriod: 100000, Memory: 1 << 20, Processes: 9, Unified: map[string]string{"memory.high": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Limit(Limits{CPUShares: 1024, Unified: map[string]string{"io.weight": "3"}}); err == nil || !strings.Contains(err.Error(), "io.weight") {
		t.Errorf("a limit that nothing takes: %v", err)
	}
	for path, want := range map[string]string{
		v1 + "/memory.limit_in_bytes": "1048576", v1 + "/cpu.shares": "1024", v1 + "/cpu.cfs_quota_us": "50000", v1 + "/cpu.cfs_period_us": "100000",
		v2 + "/memory.max": "1048576", v2 + "/cpu.weight": "39", v2 + "/cpu.max": "50000 100000", v2 + "/memory.high": "7", v2 + "/memory.oom.group": "1", v2 + "/pids.max": "9",
	} {
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s is %q, want %q", filepath.Base(path), got, want)
		}
	}
	if _, err := os.Stat(v2 + "/io.weight"); err == nil {
		t.Error("a file of a controller that is not there was made")
	}
	stats := map[string]string{
		v2 + "/cpu.stat": "usage_usec 5\nuser_usec 3\n", v1 + "/memory.usage_in_bytes": "100\n",
		v1 + "/memory.stat": "total_inactive_file 30\ntotal_rss 40\n", v1 + "/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
	}
	for path, text := range stats {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stats(); s.CPU != 5000 || s.Usage != 100 || s.WorkingSet != 70 || s.RSS != 40 || s.Limit != 1<<20 {
		t.Errorf("%+v", s)
	}
	if n := g.OOMKills(); n != 2 {
		t.Errorf("%d kills", n)
	}
}

// Nothing is swapped unless that is asked for, as a kubelet has it by default.
func TestSwap(t *testing.T) {
	const max, memsw = "memory.swap.max", "memory.memsw.limit_in_bytes"
	for name, test := range map[string]struct {
		l    Limits
		want map[string]string
	}{
		"no limits":             {Limits{}, map[string]string{max: "0"}},
		"memory":                {Limits{Memory: 8}, map[string]string{max: "0", memsw: "8"}},
		"memory without limit":  {Limits{Memory: -1}, map[string]string{max: "0", memsw: "-1"}},
		"both":                  {Limits{Memory: 8, Swap: 10}, map[string]string{max: "2"}},
		"no limit of swap":      {Limits{Memory: 8, Swap: -1}, map[string]string{}},
		"less swap than memory": {Limits{Memory: 8, Swap: 7}, map[string]string{}},
		"by its file":           {Limits{Unified: map[string]string{max: "5"}}, map[string]string{max: "5"}},
	} {
		got := map[string]string{}
		for _, f := range test.l.files() {
			if f.name == max || f.name == memsw {
				got[f.name] = f.value
				if f.value == "0" && f.limit != "" {
					t.Errorf("%s: kernels without swap accounting do not do", name)
				}
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if l := (*Hierarchies)(nil).Enforced(Limits{Memory: 8, Swap: 10}); slices.ContainsFunc(l.files(), func(f file) bool { return f.name == memsw }) {
		t.Errorf("a limit that has no effect forbids all swap: %+v", l)
	}
}

// Without control groups everything does nothing, and no limit is reported to hold.
func TestNone(t *testing.T) {
	var h *Hierarchies
	g := h.Group("a")
	if err := g.Create(); err != nil || g.Add(1) != nil || g.Limit(Limits{CPUShares: 2, Memory: -1, Processes: 3}) != nil || g.Limit(Limits{Memory: 1}) == nil || g.Kill() || g.Remove() != nil || len(g.Processes()) > 0 || h.String() != "none" {
		t.Errorf("%v", err)
	}
	h.Tidy("a")
}

// A limit that nothing enforces is known as such.
func TestUnenforced(t *testing.T) {
	v2 := t.TempDir()
	if err := os.WriteFile(filepath.Join(v2, "cgroup.subtree_control"), []byte("cpu pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := Limits{CPUShares: 2, CPUQuota: 1, Memory: 1, Swap: 1, Unified: map[string]string{"memory.high": "1", "cpu.idle": "1", "cgroup.max.depth": "1"}}
	for name, test := range map[string]struct {
		h    *Hierarchies
		l    Limits
		want []string
	}{
		"none":           {nil, all, []string{"cpu", "memory", "swap", "cgroup.max.depth", "cpu.idle", "memory.high"}},
		"v1":             {&Hierarchies{dirs: map[string]string{"memory": "/m", "name=systemd": "/s"}}, all, []string{"cpu", "swap", "cgroup.max.depth", "cpu.idle", "memory.high"}},
		"v2":             {&Hierarchies{dirs: map[string]string{unified: v2}}, all, []string{"memory", "swap", "memory.high"}},
		"both":           {&Hierarchies{dirs: map[string]string{"memory": "/m", unified: v2}}, all, []string{"swap", "memory.high"}},
		"no limits":      {nil, Limits{CPUShares: 2, CPUQuota: -1, Memory: -1}, nil},
		"nothing at all": {nil, Limits{}, nil},
	} {
		if got := test.h.Unenforced(test.l); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if left := test.h.Unenforced(test.h.Enforced(test.l)); len(left) > 0 {
			t.Errorf("%s: of those that are enforced %q are not", name, left)
		}
	}
}
