package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// providers are those that the agent can have.
var providers = []string{"mock", "process", "kubernetes"}

// node is the name of the agent's.
const node = "soak"

// prefix is that of the namespaces of the other cluster.
const prefix = "home-"

// agent is the process that soaks.
type agent struct {
	client  kubernetes.Interface // of the API server, which asks the agent
	process *daemon.Process
	metrics string // address
	log     string
}

// root is the directory of provider process.
func (s *soak) root() string { return filepath.Join(s.dir, "root") }

// providerConfig is the content of the provider's configuration.
func (s *soak) providerConfig() any {
	pods := strconv.Itoa(2 * s.pods)
	switch s.provider {
	case "process":
		return map[string]any{"root": s.root(), "pods": pods, "runtime": map[string]any{"sharedNetwork": true}}
	case "kubernetes":
		return map[string]any{
			"apiVersion": "kubernetes.virtual-kubelet.io/v1", "kind": "RemoteCluster", "cluster": "home", "remote": map[string]any{"kubeconfig": s.others[0].kubeconfig},
			"namespaces": map[string]any{"mapping": "prefix", "prefix": prefix}, "capacity": map[string]any{"resources": map[string]string{"pods": pods}},
			"tokens": "disabled", // the clusters have no network in common
		}
	}
	return map[string]any{node: map[string]any{"pods": pods}}
}

// startAgent starts the agent and waits until its node is Ready.
func (s *soak) startAgent(ctx context.Context) (a *agent, err error) {
	config := filepath.Join(s.dir, "provider.json")
	content, err := json.Marshal(s.providerConfig())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, content, 0o600); err != nil {
		return nil, err
	}
	ports, err := daemon.FreePorts(1)
	if err != nil {
		return nil, err
	}
	a = &agent{client: s.home.client, log: filepath.Join(s.dir, "agent.log"), metrics: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	log, err := os.Create(a.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.process, err = daemon.Launch(exec.Command(filepath.Join(s.bin, "virtual-kubelet"), "--nodename", node, "--kubeconfig", s.home.kubeconfig,
		"--port", "0", "--metrics-addr", a.metrics, "--debug-http", "--disable-taint", "--provider", s.provider, "--provider-config", config), log)
	if err != nil {
		return nil, err
	}
	if err := waitReady(ctx, s.home.client, node); err != nil {
		return nil, errors.Join(err, a.stop())
	}
	return a, nil
}

// stop ends the agent, and returns an error if it had ended before or does not.
func (a *agent) stop() error {
	if err := a.process.Stop(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the agent: %w: see %s", err, a.log)
	}
	return nil
}

// look has the agent collect its garbage, and returns what it has then.
func (a *agent) look(ctx context.Context) (map[string]float64, error) {
	if err := a.collect(ctx); err != nil {
		return nil, err
	}
	metrics, err := gauge.ReadMetrics(ctx, "http://"+a.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	memory, err := gauge.RSS(a.process.PID())
	if err != nil {
		return nil, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.process.PID()))
	if err != nil {
		return nil, err
	}
	return map[string]float64{heap: metrics["go_memstats_heap_alloc_bytes"] / 1e6, rss: float64(memory.Now) / 1e6,
		goroutines: metrics["go_goroutines"], files: float64(len(open))}, nil
}

// collect has the agent collect its garbage, as it does for such a profile.
func (a *agent) collect(ctx context.Context) error {
	_, err := a.client.CoreV1().RESTClient().Get().RequestURI("/api/v1/nodes/"+node+"/proxy/debug/pprof/heap?gc=1").SetHeader("Accept", "*/*").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read a profile of the agent: %w", err)
	}
	return nil
}

// podsCounted is how many pods the agent says that it has.
func (a *agent) podsCounted(ctx context.Context) (float64, error) {
	metrics, err := gauge.ReadMetrics(ctx, "http://"+a.metrics+"/metrics")
	return metrics["kubelet_running_pods"], err
}

// forgets waits until the agent counts no pods any more, for a while.
func (a *agent) forgets(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		counted, err := a.podsCounted(ctx)
		return counted == 0, err
	})
	if wait.Interrupted(err) {
		return nil // and the table says how many there are
	}
	return err
}

// processesOf are the command lines that name a directory, but for the agent's.
func processesOf(dir string) (found []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if words := strings.ReplaceAll(string(line), "\x00", " "); strings.Contains(words, dir+"/") {
			found = append(found, words)
		}
	}
	return found, nil
}

// median is the middle of some values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// quarters are the medians of the second and of the last quarter of a course.
func quarters(course []float64) (second, last float64) {
	n := max(len(course)/4, 1)
	return median(course[min(n, len(course)-n):][:n]), median(course[len(course)-n:])
}
