package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// conditions are those of a scenario, of the command line, and those under which
// anything is measured.
func (r *rig) conditions(of []string, loadBefore string) ([]string, error) {
	version, err := r.client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	return append(append(of, r.notes...),
		fmt.Sprintf("Kubernetes %s, %s, %s/%s", version.GitVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH),
		fmt.Sprintf("%d CPUs", runtime.NumCPU()),
		fmt.Sprintf("load average %s before, %s after", loadBefore, loadAverage()),
		time.Now().UTC().Format(time.DateOnly),
	), nil
}

// loadAverage is that of the last minute.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
