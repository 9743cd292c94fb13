package mock

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The events of a journal.
const (
	eventCreate   = "create"   // a pod is held from now on
	eventRefused  = "refused"  // CreatePod failed: nothing was created
	eventUpdate   = "update"   // it was changed
	eventDelete   = "delete"   // its end was asked for
	eventTerminal = "terminal" // all of its containers have stopped
	eventForget   = "forget"   // it is not held any longer
)

// record is one line of a journal.
type record struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// Pod is written without its environment for create and update, and else as
	// its identity, which may be that of held.
	Pod     *corev1.Pod `json:"pod"`
	held    *held
	IP      string `json:"ip,omitempty"`
	Message string `json:"message,omitempty"`

	StopAt time.Time `json:"stopAt,omitzero"`
	Killed bool      `json:"killed,omitempty"`

	Phase    corev1.PodPhase `json:"phase,omitempty"`
	Started  time.Time       `json:"started,omitzero"`
	Ready    time.Time       `json:"ready,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	ExitCode int32           `json:"exitCode,omitempty"`
}

// WithJournal has the provider record what happens to its pods in rw (a file,
// say), one JSON object a line, and begin with the pods that are held by what is
// recorded there already. So the pods of a process that was killed go on in the
// next one, and it can be seen that none was created twice. The environment of
// pods, which may have secrets, is not recorded.
func WithJournal(rw io.ReadWriteSeeker) Option {
	return func(p *Provider) { p.journal = &journal{rw: rw} }
}

// journal is the record of what happens; nil keeps none.
type journal struct {
	rw io.ReadWriteSeeker

	mu  sync.Mutex
	err error
}

// append adds a line. An error also makes Ping fail until a later one succeeds.
func (j *journal) append(r record) error {
	if j == nil {
		return nil
	}
	switch {
	case r.held != nil:
		r.Pod = identified(r.held.pod.namespace, r.held.pod.name, r.held.pod.uid)
	case r.Event == eventCreate, r.Event == eventUpdate:
		r.Pod = withoutEnv(r.Pod)
	default:
		r.Pod = identified(r.Pod.Namespace, r.Pod.Name, r.Pod.UID)
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = j.rw.Write(append(line, '\n'))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err = nil; err != nil {
		j.err = errdefs.AsUnavailable(fmt.Errorf("write the journal of the mock provider: %w", err))
	}
	return j.err
}

// appendLater adds a record whose error has no caller to go to: Ping returns it.
func (j *journal) appendLater(r record) { _ = j.append(r) }

func (j *journal) failure() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// read returns all records and goes to the end.
func (j *journal) read() ([]record, error) {
	if _, err := j.rw.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var records []record
	in := bufio.NewReader(j.rw)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		torn := errors.Is(err, io.EOF)
		if err != nil && !torn {
			return nil, err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			var r record
			// A process that is killed may leave half a line, which the next
			// one ends.
			if err := json.Unmarshal(text, &r); err == nil && r.Pod != nil {
				records = append(records, r)
			} else if text[len(text)-1] == '}' && json.Valid(text) {
				return nil, fmt.Errorf("line %d is no record: %w", n, errors.Join(err, errNoPod))
			}
		}
		if torn {
			_, err := j.rw.Seek(0, io.SeekEnd)
			if err == nil && len(line) > 0 {
				_, err = j.rw.Write([]byte("\n"))
			}
			return records, err
		}
	}
}

var errNoPod = errors.New("a record needs an event and a pod")

// replay restores the pods that the journal has.
func (p *Provider) replay() error {
	if p.journal == nil {
		return nil
	}
	records, err := p.journal.read()
	if err != nil {
		return fmt.Errorf("read the journal of the mock provider: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range records {
		if err := p.replayRecord(r); err != nil {
			return fmt.Errorf("replay the journal of the mock provider: %w", err)
		}
	}
	for _, h := range p.pods {
		p.advance(h, time.Now(), true)
	}
	return nil
}

func (p *Provider) replayRecord(r record) error {
	if r.Event == eventRefused {
		return nil
	}
	if r.Event == eventCreate {
		s, err := scriptOf(p.cfg, r.Pod)
		if err != nil {
			return err
		}
		k, err := keep(r.Pod)
		if err != nil {
			return err
		}
		p.addresses.reserve(r.IP)
		p.hold(k, &r.Pod.Status, s, r.IP, r.Time)
		return nil
	}
	h, err := p.find(r.Pod)
	if err != nil {
		return nil // a line of it is lost
	}
	switch r.Event {
	case eventUpdate:
		s, err := scriptOf(p.cfg, r.Pod)
		if err != nil {
			return err
		}
		k, err := keep(r.Pod)
		if err != nil {
			return err
		}
		p.catchUp(h, r.Time)
		h.update(k, s)
	case eventDelete:
		p.catchUp(h, r.Time)
		h.stopAt, h.killed = r.StopAt, r.Killed
	case eventTerminal:
		// What happened has happened, also if the config says otherwise now.
		if h.first.IsZero() {
			h.first = r.Started
		}
		h.current = instance{started: r.Started, ready: r.Ready}
		h.end(r.Ended, r.ExitCode)
	case eventForget:
		p.forget(h)
	}
	return nil
}

// identified returns a pod with nothing but an identity.
func identified(namespace, name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
}

// withoutEnv returns pod without its environment and managed fields.
func withoutEnv(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ManagedFields = nil
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Env = nil
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = nil
	}
	for i := range pod.Spec.EphemeralContainers {
		pod.Spec.EphemeralContainers[i].Env = nil
	}
	return pod
}
