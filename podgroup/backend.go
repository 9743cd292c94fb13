package podgroup

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Backend is a service that runs a pod as one unit. It also is a Lister or a Getter, and
// may be any of the other interfaces of this file; what it is not, the node cannot do.
//
// Methods are called concurrently, also for the same unit. Their contexts have a deadline,
// unless the method says otherwise. Errors have a class of package errdefs, which Codes
// gives them; what has no class is tried again with growing delays. They contain no
// secrets: they go into logs, events and statuses.
type Backend interface {
	// Create creates the unit of a pod, and returns what is known of it: its ID at
	// least. It may be called again for the same pod with the same Request.Token after an
	// answer was lost, and returns the same unit then; where the service does not do that
	// by itself, Create looks for the unit first. A permanent error (errdefs.IsPermanent)
	// fails the pod. NotCreated marks an error after which no unit can show up, such as that
	// of a call before the creation.
	Create(ctx context.Context, r *Request) (Unit, error)
	// Delete stops the containers of a unit, within grace if the service takes a grace
	// period with the deletion, and removes it. It returns when the service has accepted
	// that. An error of class NotFound says that there is no such unit.
	Delete(ctx context.Context, u *Unit, grace time.Duration) error
}

// Lister is a Backend that lists its units.
type Lister interface {
	// List returns a page of the units that have all tags of filter: from the beginning
	// if page is empty, else from where Page.Next points. It may return others too: which
	// belong to the node is decided by their tags.
	List(ctx context.Context, filter map[string]string, page string) (Page, error)
}

// Page is a part of a list of units.
type Page struct {
	Units []Unit
	// Next is the next page; empty after the last.
	Next string
	// Position is where a Watcher goes on from, of the first page.
	Position string
}

// Getter is a Backend without a list: it is asked for the units of pods.
type Getter interface {
	// Get returns the units of these pods, each with its Owner, in any order. A pod without
	// a unit is left out. The pods must not be changed. When a pod is deleted that is left out,
	// Delete is called all the same, with a Unit that has the UID of the pod as its ID, and the
	// pod as its Data.
	Get(ctx context.Context, pods []*corev1.Pod) ([]Unit, error)
}

// Watcher is a Lister whose service reports changes as they happen. The pods' statuses are
// then notified, not polled.
type Watcher interface {
	Lister
	// Watch calls changed with each unit that changes after position (Page.Position) until
	// ctx ends or the stream breaks, without a deadline. A unit that is gone is Gone. The
	// units are then listed again, and Watch is called with the new position.
	Watch(ctx context.Context, position string, changed func(Unit)) error
}

// Updater is a Backend that updates units that run. It is called for units that are Settled.
type Updater interface {
	// Update changes what Change has.
	Update(ctx context.Context, u *Unit, change Change) error
}

// Change is an update of a unit.
type Change struct {
	// Pod is the pod as it shall be.
	Pod *corev1.Pod
	// Images reports whether an image has changed: all are in Pod.
	Images bool
	// Files are the contents of all volumes that have contents, by the volume's name. Nil
	// means that they have not changed.
	Files map[string]volume.Files
	// Logins are the credentials of the images' registries.
	Logins []Login
	// Token is the same for a repetition of the same change.
	Token string
}

// LogStreamer is a Backend whose service sends logs, and follows them if it is asked to.
type LogStreamer interface {
	// StreamLog returns the log of a container from the service. ctx has no deadline; it
	// ends when the reader is closed. opts.LimitBytes need not be kept to.
	StreamLog(ctx context.Context, u *Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error)
}

// LogReader is a Backend whose service returns the newest lines of a log. To follow a log,
// it is read again and again.
type LogReader interface {
	// ReadLog returns lines of a log of a container, each with its time before it (RFC
	// 3339) if q.Timestamps is set.
	ReadLog(ctx context.Context, u *Unit, container string, q LogQuery) (string, error)
}

// LogQuery says which lines of a log are wanted.
type LogQuery struct {
	// Since is the time of the oldest wanted line, which may be rounded down; zero for all.
	Since time.Time
	// Tail is the number of lines from the end; zero for as many as the service has.
	Tail int
	// Previous asks for the log of the run before the current one.
	Previous bool
	// Timestamps asks for the time before each line.
	Timestamps bool
}

// Execer is a Backend that runs commands in containers.
type Execer interface {
	// Exec runs a command, connected to attach, until it has ended or ctx ends, without a
	// deadline. An exit code is an error that has it (k8s.io/utils/exec.ExitError).
	Exec(ctx context.Context, u *Unit, container string, command []string, attach api.AttachIO) error
}

// Attacher is a Backend that connects clients to the main process of a container.
type Attacher interface {
	// Attach connects attach until either side ends, without a deadline.
	Attach(ctx context.Context, u *Unit, container string, attach api.AttachIO) error
}

// Forwarder is a Backend that connects clients to ports of pods.
type Forwarder interface {
	// Forward connects stream to a port, until either side ends, without a deadline.
	Forward(ctx context.Context, u *Unit, port int32, stream io.ReadWriteCloser) error
}

// Meter is a Backend that measures what pods use.
type Meter interface {
	// Usage returns the figures of units that run; those without are left out. PodRef and
	// StartTime are filled in by the caller; the order is that of units, with a zero
	// PodStats (without CPU and memory) for a unit that has none. Of CPU either figure will do:
	// UsageCoreNanoSeconds is made of UsageNanoCores where it is nil. Figures of CPU and memory
	// with a zero Time are of now.
	Usage(ctx context.Context, units []*Unit) ([]stats.PodStats, error)
}

// Reporter is a Backend that says something of the node: its capacity, taints, conditions.
type Reporter interface {
	// Report changes n, a copy of the Node as it was made at the start. An error makes the
	// node NotReady. It is called at each ping of the node.
	Report(ctx context.Context, n *corev1.Node) error
}

// Replacer is a Backend that creates another unit of a pod of its own accord, such as in place of
// one that was lost.
type Replacer interface {
	// SetRequest is called by New, before any other method. request returns the request for
	// another unit of a pod, with the name, token and tags of the first: environment and files
	// are read again, and what the pod's status says of containers, which is about an earlier
	// unit, is left out. It does not change pod. Errors are those of a creation: a permanent one
	// says that the pod cannot run any more.
	SetRequest(request func(ctx context.Context, pod *corev1.Pod) (*Request, error))
}

// EmptyConfirmer is a Lister whose service answers with nothing where it means something
// else, such as that a right is missing.
type EmptyConfirmer interface {
	// ConfirmEmpty is called when a list has no units, with a pod that was created in a unit
	// and has not ended, as far as its status shows, and returns an error if that unit exists,
	// or if this cannot be found out. The pod must not be changed.
	ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error
}

// Request is a unit to be created.
type Request struct {
	// Pod is the pod. Environment variables are resolved, except for those that refer to
	// the pod's addresses. It must not be changed.
	Pod *corev1.Pod
	// Name is a name for the unit: lower-case letters, digits and hyphens, at most
	// Options.MaxName long, that begins with namespace and name of the pod and is unique.
	Name string
	// Token is the same for each creation of this pod, unless the service has lost its unit.
	Token string
	// Tags are the unit's identity: see Identity.
	Tags map[string]string
	// Files are the contents of the pod's configMap, secret, downwardAPI and projected
	// volumes, by the volume's name.
	Files map[string]volume.Files
	// Claims are the volumes that the pod's claims are bound to, by the volume's name.
	Claims map[string]*corev1.PersistentVolume
	// Logins are the credentials of the registries of the pod's images.
	Logins []Login
	// DNS is the pod's resolver configuration: empty if the service's own applies.
	DNS podspec.ResolvConf
	// Size is what the pod requests, rounded up to what the service sells.
	Size Size
}

// Login is the credentials of a registry.
type Login struct{ Registry, Username, Password string }

// Phase is how far a unit has come.
type Phase int

const (
	// Pending is a unit none of whose containers runs yet, and that takes no updates.
	Pending Phase = iota
	// Running is a unit with containers that run, or are started again.
	Running
	// Updating is one that runs, and takes no updates now.
	Updating
	// Stopping is one whose deletion was accepted.
	Stopping
	// Succeeded and Failed are units that have ended: nothing of them runs any more,
	// and nothing will.
	Succeeded
	Failed
	// Gone is a unit that the service no longer has: only a Watcher reports it.
	Gone
)

// Unit is what a service says of a unit. Only ID, and Tags or Owner, are required.
type Unit struct {
	// ID is the service's.
	ID string
	// Tags are those of Request.Tags, and others.
	Tags map[string]string
	// Owner is the pod; if it is zero, it is read from Tags.
	Owner Owner

	// Phase is that of the whole. Created is when it was created, and Ended when it ended,
	// if it has.
	Phase          Phase
	Created, Ended time.Time
	// Failure is why the service ended it, if its containers do not show that.
	Failure *podspec.Failure
	// IPs are its addresses, HostIPs those of the machine, the primary one first: see
	// podspec.Observation. HostIPs default to the node's.
	IPs, HostIPs []string
	// Containers are those of all kinds that the service reports on, in any order.
	Containers []Container
	// Files are the contents that the service shows of the pod's volumes. Nil means that
	// it shows none.
	Files map[string]volume.Files
	// Events are the newest that the service has of it.
	Events []Event
	// Annotations are what the annotations of its pod shall say of it, such as the ID of a
	// job. They are written through the pod's status, which a node may do.
	Annotations map[string]string
	// Unknown is set of a unit that exists, and whose state cannot be read at the moment: the
	// status of its pod stays as it is. A list goes on without the states of a few units, and
	// with the units, since those that it lacks count as gone. Logs of containers that it
	// names can be read, and commands run in them, if the service does so.
	Unknown bool
	// Data is what the backend wants to find again when it is called with this unit. It is
	// not changed.
	Data any
}

// Settled reports whether the unit runs and takes updates.
func (u *Unit) Settled() bool { return u.Phase == Running }

// Over reports whether nothing of the unit runs any more, and nothing will.
func (u *Unit) Over() bool { return u.Phase == Succeeded || u.Phase == Failed || u.Phase == Gone }

// hasStarted reports whether a container of the unit runs, or has run.
func (u *Unit) hasStarted() bool {
	return slices.ContainsFunc(u.Containers, func(c Container) bool { return c.Now.State != Waiting || c.Last.State != Waiting })
}

// LastWarning returns reason and message of the newest of Events that is a warning, if there
// is one.
func (u *Unit) LastWarning() string {
	var last Event
	for _, e := range u.Events {
		if e.Type == corev1.EventTypeWarning && !e.At.Before(last.At) {
			last = e
		}
	}
	return strings.Trim(last.Reason+": "+last.Message, ": ")
}

// Container returns the container with a name, or nil.
func (u *Unit) Container(name string) *Container {
	for i := range u.Containers {
		if u.Containers[i].Name == name {
			return &u.Containers[i]
		}
	}
	return nil
}

// Container is what a service says of a container.
type Container struct {
	Name string
	// Image is the image that it runs, and ImageID that with its digest. Image defaults to
	// that of the pod, ImageID to Image. An Image that differs from the pod's makes an
	// Updater update it.
	Image, ImageID string
	// Now is its state, and Last how the run before ended.
	Now, Last Run
	// Restarts is how often it was started again.
	Restarts int32
	// Ready and Started are what the service's probes say. Nil means that it is ready, and
	// has started, when it runs.
	Ready, Started *bool
}

// State is that of a run of a container.
type State int

const (
	// Waiting is one that has not started.
	Waiting State = iota
	// Executing is one that runs.
	Executing
	// Terminated is one that has ended.
	Terminated
)

// Run is a run of a container.
type Run struct {
	State State
	// Reason and Message say why it waits or has ended. They have defaults.
	Reason, Message string
	// ExitCode and Signal are how it ended.
	ExitCode, Signal int32
	// Started and Finished are zero where they are not known.
	Started, Finished time.Time
}

// RunOf returns the run of which a service has the state in the form of Kubernetes.
func RunOf(s *corev1.ContainerState) Run {
	switch {
	case s.Terminated != nil:
		t := s.Terminated
		return Run{State: Terminated, Reason: t.Reason, Message: t.Message, ExitCode: t.ExitCode, Signal: t.Signal, Started: t.StartedAt.Time, Finished: t.FinishedAt.Time}
	case s.Running != nil:
		return Run{State: Executing, Started: s.Running.StartedAt.Time}
	case s.Waiting != nil:
		return Run{Reason: s.Waiting.Reason, Message: s.Waiting.Message}
	}
	return Run{}
}

// Event is something that happened to a unit.
type Event struct {
	// Type is Normal or Warning.
	Type            string
	Reason, Message string
	// At is when it happened last.
	At time.Time
}
