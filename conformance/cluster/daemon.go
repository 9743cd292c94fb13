package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// daemon is a program that says with a line that it is ready, and that stops
// when its standard input ends, hence also when this process is killed. It is no
// internal/daemon: this module depends on no other of the repository.
type daemon struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// startDaemon returns when the program is ready, with its line.
func startDaemon(ctx context.Context, name, binary string, args ...string) (*daemon, string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stderr = os.Stderr
	// A Ctrl-C in the terminal must reach this process alone, which stops the
	// parts in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w: build it with \"make conformance-parts\"", name, err)
	}
	d := &daemon{name: name, cmd: cmd, stdin: stdin}
	stop := context.AfterFunc(ctx, func() { _ = stdin.Close() })
	defer stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%s ended before it was ready", name), d.stop())
	}
	return d, line, nil
}

func (d *daemon) stop() error {
	_ = d.stdin.Close() // fails only when it was closed before
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("%s failed: %w", d.name, err)
	}
	return nil
}

// killable is a program that the kernel kills when this process dies.
type killable struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it is gone
}

func startKillable(name string, cmd *exec.Cmd, logFile string) (*killable, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	k := &killable{name: name, log: logFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log says more
		close(k.done)
	}()
	return k, nil
}

// ended says that the program has ended without having been stopped.
func (k *killable) ended() error {
	select {
	case <-k.done:
		return fmt.Errorf("%s ended by itself (%s): see %s", k.name, k.cmd.ProcessState, k.log)
	default:
		return nil
	}
}

// stop asks the program to end, and kills it when it does not.
func (k *killable) stop() error {
	if err := k.ended(); err != nil {
		return err
	}
	_ = k.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-k.done:
		return nil
	case <-time.After(30 * time.Second):
		_ = k.cmd.Process.Kill()
		<-k.done
		return fmt.Errorf("%s did not end within 30 s of a SIGTERM and was killed: see %s", k.name, k.log)
	}
}
