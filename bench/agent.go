package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// agent is a program that is to be measured.
type agent struct {
	name string
	// command is its command line, in which the following stand for what they
	// name:
	//
	//	NODE        name of the node, or the beginning of the names of several
	//	NODES       their number
	//	KUBECONFIG  path of the kubeconfig
	//	METRICS     address on which it is to serve its metrics; if there is none,
	//	            what it allocates is not measured
	command []string
}

// parseAgent reads "NAME=COMMAND LINE".
func parseAgent(text string) (agent, error) {
	name, line, ok := strings.Cut(text, "=")
	command := strings.Fields(line)
	if !ok || name == "" || len(command) == 0 {
		return agent{}, fmt.Errorf("%q is no agent: write NAME=COMMAND, with NODE and KUBECONFIG where their values belong", text)
	}
	return agent{name, command}, nil
}

// running is an agent whose nodes are Ready.
type running struct {
	process *daemon.Process
	log     string
	nodes   []string // their names
	metrics string   // address; empty if it serves none
}

// start starts the agent and waits until it has the given number of nodes that
// are Ready, whose names begin with node.
func (r *rig) start(ctx context.Context, a agent, node string, count int) (*running, error) {
	p, err := r.launch(a, node, count)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if p.nodes, err = readyNodes(ctx, r.client, node, count, p.process.Done()); err != nil {
		return nil, errors.Join(fmt.Errorf("wait until the nodes of %s are Ready: %w: see %s", a.name, err, p.log), p.stop())
	}
	return p, nil
}

// launch starts the agent.
func (r *rig) launch(a agent, node string, count int) (*running, error) {
	p := &running{log: filepath.Join(r.dir, node+".log")}
	if slices.ContainsFunc(a.command, func(arg string) bool { return strings.Contains(arg, "METRICS") }) {
		var err error
		if p.metrics, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	values := strings.NewReplacer("NODES", fmt.Sprint(count), "NODE", node, "KUBECONFIG", r.kubeconfig, "METRICS", p.metrics)
	args := make([]string, 0, len(a.command))
	for _, arg := range a.command {
		args = append(args, values.Replace(arg))
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if p.process, err = daemon.Launch(exec.Command(args[0], args[1:]...), log); err != nil {
		return nil, err
	}
	return p, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (p *running) pid() int { return p.process.PID() }

// stop ends the agent, and returns an error if it had ended before or does not.
func (p *running) stop() error {
	err := p.process.Stop(syscall.SIGTERM)
	if _, ok := errors.AsType[*exec.ExitError](err); ok || err == nil {
		return nil // not all agents end with exit code 0
	}
	return fmt.Errorf("%w: see %s", err, p.log)
}
