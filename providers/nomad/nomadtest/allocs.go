package nomadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// NodeID is the machine of all allocations.
const NodeID = "99999999-0000-4000-8000-000000000000"

func (j *job) allocID() string {
	return fmt.Sprintf("%08x-0000-4000-8000-000000000000", j.create)
}

// alloc returns the allocation; full has what lists lack.
func (j *job) alloc(full bool) *api.Allocation {
	u := &j.unit
	a := &api.Allocation{
		ID: j.allocID(), Namespace: "default", JobID: *j.spec.ID, NodeID: NodeID, TaskGroup: "pod", DesiredStatus: api.AllocDesiredStatusRun, TaskStates: map[string]*api.TaskState{},
		AllocatedResources: &api.AllocatedResources{Shared: api.AllocatedSharedResources{Networks: []*api.NetworkResource{{IP: "192.0.2.9", Mode: j.spec.TaskGroups[0].Networks[0].Mode}}}},
		CreateIndex:        j.create + 1, ModifyIndex: j.modify, CreateTime: u.Created.UnixNano(), ModifyTime: u.Created.UnixNano(),
	}
	status := map[podgroup.Phase]string{
		podgroup.Pending: api.AllocClientStatusPending, podgroup.Running: api.AllocClientStatusRunning, podgroup.Stopping: api.AllocClientStatusRunning,
		podgroup.Succeeded: api.AllocClientStatusComplete, podgroup.Failed: api.AllocClientStatusFailed,
	}
	a.ClientStatus = status[u.Phase]
	if j.stopped {
		a.DesiredStatus, a.DesiredDescription = api.AllocDesiredStatusStop, "alloc not needed due to job update"
	}
	if j.gone {
		a.ClientStatus = api.AllocClientStatusComplete
	}
	if j.client != "" {
		a.ClientStatus = j.client
	}
	if j.desired != "" {
		a.DesiredStatus, a.DesiredDescription = j.desired, "as the test wants"
	}
	for i := range u.Containers {
		a.TaskStates[u.Containers[i].Name] = taskState(&u.Containers[i], j)
	}
	if full && len(u.IPs) > 0 && a.AllocatedResources.Shared.Networks[0].Mode != "host" {
		a.NetworkStatus = &api.AllocNetworkStatus{InterfaceName: "eth0", Address: u.IPs[0]}
	}
	return a
}

func taskState(c *podgroup.Container, j *job) *api.TaskState {
	state := &api.TaskState{State: "pending", Restarts: uint64(c.Restarts)} // #nosec G115 -- it is not negative
	event := func(kind string, at time.Time, code int32) {
		state.Events = append(state.Events, &api.TaskEvent{Type: kind, Time: at.UnixNano(), ExitCode: int(code), DisplayMessage: kind, Details: map[string]string{"exit_code": fmt.Sprint(code)}})
	}
	event(api.TaskReceived, j.unit.Created, 0)
	if c.Last.State == podgroup.Terminated {
		event(api.TaskTerminated, c.Last.Finished, c.Last.ExitCode)
		event(api.TaskRestarting, c.Last.Finished, 0)
	}
	if !j.restored.IsZero() {
		event(api.TaskStarted, j.unit.Created, 0)
		event("Failed Restoring Task", j.restored, 0)
	}
	switch c.Now.State {
	case podgroup.Executing:
		state.State, state.StartedAt = "running", c.Now.Started
		event(api.TaskStarted, c.Now.Started, 0)
	case podgroup.Terminated:
		state.State, state.StartedAt, state.FinishedAt, state.Failed = "dead", c.Now.Started, c.Now.Finished, c.Now.ExitCode != 0
		event(api.TaskStarted, c.Now.Started, 0)
		event(api.TaskTerminated, c.Now.Finished, c.Now.ExitCode)
	default:
		if j.unit.Phase == podgroup.Failed {
			state.State, state.Failed, state.FinishedAt = "dead", true, j.unit.Ended
			event(api.TaskDriverFailure, j.unit.Ended, 0)
		}
	}
	if j.gone && state.State == "running" {
		state.State, state.FinishedAt = "dead", state.StartedAt
		event(api.TaskTerminated, state.StartedAt, 143)
	}
	return state
}

var jobFilter = regexp.MustCompile(`^JobID matches "(\^[a-z0-9-]+)"$`)

func (s *Server) listAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	var matches *regexp.Regexp
	if filter := r.URL.Query().Get("filter"); filter != "" {
		found := jobFilter.FindStringSubmatch(filter)
		if found == nil {
			return nil, bad("failed to create result paginator: failed to read filter expression %q", filter)
		}
		matches = regexp.MustCompile(found[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := s.look()
	var all []*api.AllocationListStub
	for _, j := range s.jobs {
		if hidden {
			break
		}
		all = append(all, j.stub())
	}
	all = append(all, s.Others...)
	var shown []*api.AllocationListStub
	for _, a := range all {
		if matches != nil && !matches.MatchString(a.JobID) {
			continue
		}
		if r.URL.Query().Get("resources") != "true" {
			a.AllocatedResources = nil
		}
		shown = append(shown, a)
	}
	return page(w, r, s.index, shown, func(a *api.AllocationListStub) string { return a.ID })
}

// stub returns what lists have of the allocation.
func (j *job) stub() *api.AllocationListStub {
	a := j.alloc(false)
	return &api.AllocationListStub{
		ID: a.ID, Namespace: a.Namespace, NodeID: a.NodeID, JobID: a.JobID, TaskGroup: a.TaskGroup, AllocatedResources: a.AllocatedResources,
		DesiredStatus: a.DesiredStatus, DesiredDescription: a.DesiredDescription, ClientStatus: a.ClientStatus, TaskStates: a.TaskStates,
		CreateIndex: a.CreateIndex, ModifyIndex: a.ModifyIndex, CreateTime: a.CreateTime, ModifyTime: a.ModifyTime,
	}
}

// jobAllocs lists the allocations of a job, which need not exist any more.
func (s *Server) jobAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	all := []*api.AllocationListStub{}
	if j := s.jobs[id]; j != nil {
		all = append(all, j.stub())
	}
	for _, a := range s.Others {
		if a.JobID == id && r.URL.Query().Get("all") == "true" {
			all = append(all, a)
		}
	}
	setIndex(w, s.index)
	return all, nil
}

func (s *Server) getAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	j := s.byAlloc(id)
	if j == nil {
		return nil, notFound("alloc")
	}
	setIndex(w, s.index)
	return j.alloc(true), nil
}

// stats has the figures of an allocation and of its tasks, also of those that have ended.
func (s *Server) stats(_ http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	j := s.byAlloc(id)
	if j == nil {
		return nil, unknownAlloc(id)
	}
	used := &api.ResourceUsage{CpuStats: &api.CpuStats{Percent: s.CPUPercent}, MemoryStats: &api.MemoryStats{RSS: 1 << 20}}
	all := &api.AllocResourceUsage{ResourceUsage: used, Tasks: map[string]*api.TaskResourceUsage{}, Timestamp: s.World.Now().UnixNano()}
	for i := range j.unit.Containers {
		all.Tasks[j.unit.Containers[i].Name] = &api.TaskResourceUsage{ResourceUsage: used}
	}
	return all, nil
}

// byAlloc returns the job of an allocation, or nil. The caller holds s.mu.
func (s *Server) byAlloc(id string) *job {
	create, err := strconv.ParseUint(id[:min(8, len(id))], 16, 64)
	for _, j := range s.jobs {
		if err == nil && j.create == create && j.allocID() == id {
			return j
		}
	}
	return nil
}

// Displace has the allocation of a job of a pod end as Nomad ends it: with a desired status
// and a client's.
func (s *Server) Displace(pod, desired, client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.spec.Meta[podgroup.TagPodName] == pod {
			j.desired, j.client, j.changes = desired, client, 0 // so that it is looked at
		}
	}
}

// Restore has the machine of a pod be started again, which loses its containers: they wait, and
// then run again.
func (s *Server) Restore(pod string, runs bool) error {
	now := s.World.Now()
	s.mu.Lock()
	for _, j := range s.jobs {
		if j.spec.Meta[podgroup.TagPodName] == pod {
			j.restored, j.changes = now, 0
		}
	}
	s.mu.Unlock()
	return s.World.Change(pod, func(u *grouptest.Unit) {
		for i := range u.Containers {
			if u.Containers[i].Now = (podgroup.Run{}); runs {
				u.Containers[i].Now = podgroup.Run{State: podgroup.Executing, Started: now}
			}
		}
	})
}

// event and batch are what the event stream has.
type event struct {
	Topic      api.Topic
	Type, Key  string
	Namespace  string
	FilterKeys []string
	Index      uint64
	Payload    any
}

type batch struct {
	Index  uint64
	Events []event
}

// emit adds an event of the current index. The caller holds s.mu.
func (s *Server) emit(topic api.Topic, kind, key string, filterKeys []string, payload any) {
	text, err := json.Marshal(payload) // as of now
	if err != nil {
		text = []byte("{}") // jobs and allocations are valid JSON
	}
	s.events = append(s.events, batch{s.index, []event{{topic, kind, key, s.Namespace, filterKeys, s.index, json.RawMessage(text)}}})
}
