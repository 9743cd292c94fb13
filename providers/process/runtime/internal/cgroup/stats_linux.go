package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Stats is what a group used.
type Stats struct {
	// CPU is in nanoseconds; HasCPU and HasMemory say what is known.
	CPU               uint64
	HasCPU, HasMemory bool
	// Usage, WorkingSet and RSS are in bytes.
	Usage, WorkingSet, RSS uint64
	Faults, MajorFaults    uint64
	// Limit is the limit of memory; zero is none.
	Limit uint64
}

// Stats reads what the group used.
func (g Group) Stats() Stats {
	var s Stats
	if v, ok := pairs(g[unified], "cpu.stat")["usage_usec"]; ok {
		s.CPU, s.HasCPU = v*1000, true
	} else if v, ok := number(g["cpuacct"], "cpuacct.usage"); ok {
		s.CPU, s.HasCPU = v, true
	}
	if usage, ok := number(g[unified], "memory.current"); ok {
		stat := pairs(g[unified], "memory.stat")
		s.memory(usage, stat["inactive_file"], stat["anon"], stat)
		s.Limit, _ = number(g[unified], "memory.max")
	} else if usage, ok := number(g["memory"], "memory.usage_in_bytes"); ok {
		stat := pairs(g["memory"], "memory.stat")
		s.memory(usage, stat["total_inactive_file"], stat["total_rss"], stat)
		s.Limit, _ = number(g["memory"], "memory.limit_in_bytes")
	}
	// v1 says "no limit" with a very large number.
	if s.Limit > 1<<60 {
		s.Limit = 0
	}
	return s
}

func (s *Stats) memory(usage, inactive, rss uint64, stat map[string]uint64) {
	s.HasMemory, s.Usage, s.RSS = true, usage, rss
	s.WorkingSet = usage - min(usage, inactive)
	s.Faults, s.MajorFaults = stat["pgfault"], stat["pgmajfault"]
}

// OOMKills is how many processes of the group the kernel has killed because the
// group was out of memory.
func (g Group) OOMKills() uint64 {
	if v, ok := pairs(g[unified], "memory.events")["oom_kill"]; ok {
		return v
	}
	return pairs(g["memory"], "memory.oom_control")["oom_kill"]
}

func number(dir, file string) (uint64, bool) {
	if dir == "" {
		return 0, false
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return v, err == nil
}

// pairs reads a file of lines "name number".
func pairs(dir, file string) map[string]uint64 {
	if dir == "" {
		return nil
	}
	data, _ := os.ReadFile(filepath.Join(dir, file))
	found := map[string]uint64{}
	for line := range strings.SplitSeq(string(data), "\n") {
		name, value, ok := strings.Cut(line, " ")
		if v, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			found[name] = v
		}
	}
	return found
}
