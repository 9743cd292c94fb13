package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// agent is a program that is to be measured: its command line, in which NODE and
// KUBECONFIG stand for what they name.
type agent struct {
	name    string
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

// running is an agent whose node is Ready.
type running struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it is gone
}

// start starts the agent and waits until its node is Ready.
func (a agent) start(ctx context.Context, client kubernetes.Interface, node, kubeconfig, logFile string) (*running, error) {
	args := strings.Split(strings.NewReplacer("NODE", node, "KUBECONFIG", kubeconfig).Replace(strings.Join(a.command, "\x00")), "\x00")
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", a.name, err)
	}
	r := &running{cmd: cmd, log: logFile, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log says more
		close(r.done)
	}()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-r.done:
			return false, errors.New("it ended")
		default:
		}
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && ready(n), nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait until node %s of %s is Ready: %w: see %s", node, a.name, err, logFile), r.stop())
	}
	return r, nil
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stop ends the agent, and returns an error if it had ended before or does not.
func (r *running) stop() error {
	select {
	case <-r.done:
		return fmt.Errorf("the agent has ended (%s): see %s", r.cmd.ProcessState, r.log)
	default:
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
		return nil
	case <-time.After(30 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.done
		return fmt.Errorf("the agent did not end within 30 s of a SIGTERM: see %s", r.log)
	}
}
