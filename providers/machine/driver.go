package machine

import (
	"context"
	"time"
)

// Driver makes machines. Its methods are called concurrently, with contexts that have a deadline.
// Errors have a class of package errdefs; one without a class is tried again with growing delays,
// a permanent one fails the pod.
type Driver interface {
	// Create makes a machine and may return before it runs, or has an address. It is called
	// again with the same name when an answer was lost: it then returns the machine that has
	// this name already, with the tags that it was made with.
	Create(ctx context.Context, spec Spec) (Machine, error)
	// Delete ends a machine, whose Name at least is set; its Tags may have more than it was made
	// with. It may return before nothing runs in it
	// any more: until then List shows it. That there is none is no error.
	Delete(ctx context.Context, m Machine) error
	// List returns the machines that have all these tags, those that are being made or ended
	// among them. If it cannot return all it returns an error.
	List(ctx context.Context, tags map[string]string) ([]Machine, error)
	// Console returns the end of what a machine has written to its console, of limit bytes at
	// most, for events about machines that do not start. errors.ErrUnsupported if there is none.
	Console(ctx context.Context, m Machine, limit int) (string, error)
}

// Spec is a machine to be made.
type Spec struct {
	// Name is unique among all machines; of lower-case letters, digits and hyphens, at most 63.
	Name string `json:"name"`
	// Tags are to be found again by List, as they are. None is secret.
	Tags map[string]string `json:"tags"`
	// UserData is what the agent in the machine starts with: the JSON of an agent.Bootstrap. It
	// has a token, and belongs in no log, tag or argument of a command.
	UserData string `json:"userData"`
	// CPU, in thousandths of a core, and Memory, in bytes, are what the pod needs (the larger of
	// its requests and limits), or what the type of the machine has; 0 for nothing.
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
	// Type is the name of the machine's type, and Arguments are those of the type; empty without
	// a table of types.
	Type      string            `json:"type,omitempty"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// State is that of a machine.
type State string

// The states of machines. An empty one counts as Running.
const (
	Starting State = "starting"
	Running  State = "running"
	Ending   State = "ending"
	// Ended is a machine in which nothing runs any more, and nothing will.
	Ended State = "ended"
)

// Machine is what a Driver says of a machine.
type Machine struct {
	// ID is the driver's.
	ID string `json:"id"`
	// Name is that of the Spec.
	Name string `json:"name"`
	// Address is the IP address at which the node reaches it, and that of its pod; empty until
	// it has one.
	Address string            `json:"address"`
	Tags    map[string]string `json:"tags"`
	State   State             `json:"state"`
	// Created may be zero.
	Created time.Time `json:"created,omitzero"`
	// TakenAt is when the machine will be taken away, such as a spot instance after its notice;
	// zero if that is not known. Its pod is ended at once, within the time that is left.
	TakenAt time.Time `json:"takenAt,omitzero"`
}
