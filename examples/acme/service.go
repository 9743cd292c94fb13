package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Service is what stands in this example for your backend and its client: it "runs" a pod as a
// task, in memory, and commands on this machine.
type Service struct {
	mu       sync.Mutex
	tasks    map[string]Task // by ID
	watchers []func(Task)
}

// Task is what the service runs.
type Task struct {
	ID             string // the client's
	Namespace      string
	Name           string
	Node           string
	Containers     []TaskContainer
	Address        string
	Started, Ended time.Time // Ended is zero while it runs
	ExitCode       int
}

// TaskContainer is a container of a task. Commands that are run in it have its variables.
type TaskContainer struct {
	Name, Image string
	Variables   []string // NAME=VALUE
}

// What the service answers if it does not do what it is asked for.
var (
	ErrNoTask = errors.New("there is no such task")
	ErrQuota  = errors.New("your quota is used up")
	ErrSize   = errors.New("a task has eight containers at most")
)

// Run starts a task. If there is one of its ID already, it does nothing.
func (s *Service) Run(_ context.Context, t Task) error {
	if len(t.Containers) > 8 {
		return ErrSize
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tasks[t.ID]; ok {
		return nil
	}
	if len(s.tasks) == 1000 {
		return ErrQuota
	}
	if s.tasks == nil {
		s.tasks = map[string]Task{}
	}
	t.Address, t.Started = fmt.Sprintf("192.0.2.%d", len(s.tasks)%254+1), time.Now()
	s.tasks[t.ID] = t
	s.changed(t)
	return nil
}

// Stop ends a task, if it has not ended by itself. The service forgets it then.
func (s *Service) Stop(_ context.Context, id string, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[id]
	if !ok {
		return ErrNoTask
	}
	delete(s.tasks, id)
	if t.Ended.IsZero() {
		t.Ended, t.ExitCode = time.Now(), 143
	}
	s.changed(t)
	return nil
}

// List returns the tasks of a node.
func (s *Service) List(_ context.Context, node string) (tasks []Task, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.Node == node {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

// Watch has f called with each task that changes.
func (s *Service) Watch(f func(Task)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, f)
}

func (s *Service) changed(t Task) {
	for _, f := range s.watchers {
		f(t)
	}
}

// Healthy reports whether the service can run tasks.
func (*Service) Healthy(context.Context) error { return nil }

// Log returns the line that a container has printed, when, and whether it has ended: there will be
// no more lines then.
func (s *Service) Log(_ context.Context, id, container string) (line string, at time.Time, ended bool, _ error) {
	c, t, err := s.container(id, container)
	return "hello from image " + c.Image, t.Started, !t.Ended.IsZero(), err
}

// Exec runs a command in a container, and returns its exit code.
func (s *Service) Exec(ctx context.Context, id, container string, command []string, in io.Reader, out, errs io.Writer) (code int, _ error) {
	c, _, err := s.container(id, container)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- it is what this is for
	cmd.Env = append(cmd.Environ(), c.Variables...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func (s *Service) container(id, name string) (TaskContainer, Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	i := slices.IndexFunc(t.Containers, func(c TaskContainer) bool { return c.Name == name })
	if i < 0 {
		return TaskContainer{}, t, ErrNoTask
	}
	return t.Containers[i], t, nil
}
