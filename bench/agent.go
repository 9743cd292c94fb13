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

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
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
	// provider is the command line of the process that serves the agent's provider, if that is
	// another one. What it uses counts, too.
	provider []string
}

// parseAgent reads "NAME=COMMAND LINE".
func parseAgent(text string) (agent, error) {
	name, line, ok := strings.Cut(text, "=")
	command := strings.Fields(line)
	if !ok || name == "" || len(command) == 0 {
		return agent{}, fmt.Errorf("%q is no agent: write NAME=COMMAND, with NODE and KUBECONFIG where their values belong", text)
	}
	return agent{name: name, command: command}, nil
}

// running is an agent whose nodes are Ready.
type running struct {
	process  *daemon.Process
	provider *daemon.Process // nil for a provider in the same process
	log      string
	nodes    []string // their names
	metrics  string   // address; empty if it serves none
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
func (r *rig) launch(a agent, node string, count int) (p *running, err error) {
	p = &running{log: filepath.Join(r.dir, node+".log")}
	if slices.ContainsFunc(a.command, func(arg string) bool { return strings.Contains(arg, "METRICS") }) {
		if p.metrics, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	values := strings.NewReplacer("NODES", fmt.Sprint(count), "NODE", node, "KUBECONFIG", r.kubeconfig, "METRICS", p.metrics)
	run := func(command []string) (*daemon.Process, error) {
		args := make([]string, 0, len(command))
		for _, arg := range command {
			args = append(args, values.Replace(arg))
		}
		return daemon.Launch(exec.Command(args[0], args[1:]...), log)
	}
	if len(a.provider) > 0 {
		if p.provider, err = run(a.provider); err != nil {
			return nil, err
		}
	}
	if p.process, err = run(a.command); err != nil && p.provider != nil {
		err = errors.Join(err, p.provider.Stop(os.Kill))
	}
	if err != nil {
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

// use is what an agent has used or has in memory: in all, and of it what the process has that
// serves its provider, if there is one.
type use[T any] struct{ all, provider T }

// cpu returns the processor time that the agent has used.
func (p *running) cpu() (u use[time.Duration], err error) {
	if u.all, err = gauge.CPU(p.process.PID()); err != nil || p.provider == nil {
		return u, err
	}
	u.provider, err = gauge.CPU(p.provider.PID())
	u.all += u.provider
	return u, err
}

// rss reads the memory of the agent.
func (p *running) rss() (u use[gauge.Memory], err error) {
	if u.all, err = gauge.RSS(p.process.PID()); err != nil || p.provider == nil {
		return u, err
	}
	u.provider, err = gauge.RSS(p.provider.PID())
	u.all.Now, u.all.Anonymous, u.all.Peak = u.all.Now+u.provider.Now, u.all.Anonymous+u.provider.Anonymous, u.all.Peak+u.provider.Peak
	return u, err
}

// stop ends the agent, and returns an error if it had ended before or does not.
func (p *running) stop() (err error) {
	for _, process := range []*daemon.Process{p.process, p.provider} {
		if process == nil {
			continue
		}
		one := process.Stop(syscall.SIGTERM)
		if _, ok := errors.AsType[*exec.ExitError](one); !ok && one != nil { // not all agents end with exit code 0
			err = errors.Join(err, fmt.Errorf("%w: see %s", one, p.log))
		}
	}
	return err
}
