package nomadtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// job is a job and its only allocation.
type job struct {
	spec           *api.Job
	unit           grouptest.Unit // as of the last look; when it is gone the job is dead
	create, modify uint64
	stopped, gone  bool
	seen           string
	changes        int       // of the unit, as of seen
	desired        string    // status of the allocation, if not run or stop
	client         string    // status of the allocation, if not the unit's
	restored       time.Time // when the machine has lost the pod, and has started it again
}

func (s *Server) next() uint64 {
	s.index++
	return s.index
}

// look reads the units of the world, and makes events of what has changed. The caller holds
// s.mu. Hidden means that the world shows none.
func (s *Server) look() (hidden bool) {
	known := make(map[string]int, len(s.jobs))
	for _, j := range s.jobs {
		known[j.unit.ID] = j.changes
	}
	shown := make(map[string]bool, len(known))
	changed := map[string]*grouptest.Unit{} // copying all for each request takes minutes with 1000
	for _, u := range s.World.Units(func(u *grouptest.Unit) bool {
		shown[u.ID] = true
		changes, ok := known[u.ID]
		return !ok || changes != u.Changes
	}) {
		changed[u.ID] = &u
	}
	for id, j := range s.jobs {
		u := changed[j.unit.ID]
		if !shown[j.unit.ID] && len(shown) == 0 && !j.gone {
			if _, err := s.World.Unit(j.unit.ID); err == nil {
				return true
			}
		}
		delete(changed, j.unit.ID)
		switch {
		case shown[j.unit.ID]:
			if u == nil {
				continue
			}
			j.unit, j.changes = *u, u.Changes
			if seen := fmt.Sprint(u.Phase, u.Containers, u.IPs, u.Ended, j.desired, j.client); seen != j.seen {
				j.seen, j.modify = seen, s.next()
				s.emit(api.TopicAllocation, "AllocationUpdated", j.allocID(), []string{id}, map[string]any{"Allocation": j.alloc(true)})
			}
		case j.stopped && !j.gone:
			j.gone, j.modify = true, s.next()
			s.emit(api.TopicAllocation, "AllocationUpdated", j.allocID(), []string{id}, map[string]any{"Allocation": j.alloc(true)})
		case !j.gone: // purged by others
			s.purge(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changed)) { // units that the test made
		u := changed[id]
		spec := *u.Spec.Data.(*api.Job)
		spec.ID = new(*spec.ID + "-" + strings.TrimPrefix(id, "unit-"))
		s.jobs[*spec.ID] = &job{spec: &spec, unit: *u, create: s.next(), modify: s.index}
		s.emit(api.TopicJob, "JobRegistered", *spec.ID, nil, map[string]any{"Job": s.jobs[*spec.ID].full()})
	}
	return false
}

func (s *Server) purge(id string) {
	delete(s.jobs, id)
	s.next()
	s.emitDeregistered(id)
}

// emitDeregistered adds the event of the evaluation: that of the job is of those only that are
// stopped, not of those that are removed.
func (s *Server) emitDeregistered(id string) {
	s.emit(api.TopicEvaluation, "JobDeregistered", "e", []string{id}, map[string]any{"Evaluation": &api.Evaluation{ID: "e", JobID: id, TriggeredBy: "job-deregister"}})
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) (any, error) {
	var want api.JobRegisterRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		return nil, bad("%v", err)
	}
	if want.Job == nil || want.Job.ID == nil {
		return nil, bad("Job ID hasn't been provided")
	}
	if err := s.validate(want.Job); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	id := *want.Job.ID
	if known := s.jobs[id]; known != nil {
		if want.EnforceIndex && want.JobModifyIndex != known.modify {
			text := fmt.Sprintf("%s %d: job exists with conflicting job modify index: %d", api.RegisterEnforceIndexErrPrefix, want.JobModifyIndex, known.modify)
			return nil, &grouptest.Refusal{Status: http.StatusInternalServerError, Message: text}
		}
		return nil, invalid("another version of a job would start the pod again")
	}
	spec := grouptest.Spec{Tags: want.Job.Meta, RestartPolicy: "OnFailure", Data: want.Job, Files: s.render(want.Job)}
	if value(want.Job.Type) == api.JobTypeService {
		spec.RestartPolicy = "Always"
	}
	group := want.Job.TaskGroups[0]
	if value(group.RestartPolicy.Attempts) == 0 {
		spec.RestartPolicy = "Never"
	}
	for _, t := range group.Tasks {
		c := podgroup.Container{Name: t.Name, Image: fmt.Sprint(t.Config["image"])}
		if t.Lifecycle != nil && !t.Lifecycle.Sidecar {
			spec.InitContainers = append(spec.InitContainers, c)
		} else {
			spec.Containers = append(spec.Containers, c)
		}
	}
	u, err := s.World.Create(spec)
	if err != nil {
		return nil, err
	}
	want.Job.SubmitTime = new(u.Created.UnixNano())
	s.jobs[id] = &job{spec: want.Job, unit: u, create: s.next(), modify: s.index}
	s.emit(api.TopicJob, "JobRegistered", id, nil, map[string]any{"Job": s.jobs[id].full()})
	setIndex(w, s.index)
	return api.JobRegisterResponse{EvalID: "e", JobModifyIndex: s.index}, nil
}

func (s *Server) listJobs(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := s.look()
	var all []*api.JobListStub
	for id, j := range s.jobs {
		if hidden || !strings.HasPrefix(id, q.Get("prefix")) {
			continue
		}
		stub := &api.JobListStub{
			ID: id, Name: value(j.spec.Name), Namespace: s.Namespace, Type: value(j.spec.Type), Stop: j.stopped, Status: j.status(),
			CreateIndex: j.create, ModifyIndex: j.modify, JobModifyIndex: j.create, SubmitTime: j.unit.Created.UnixNano(),
		}
		if q.Get("meta") == "true" {
			stub.Meta = j.spec.Meta
		}
		all = append(all, stub)
	}
	return page(w, r, s.index, all, func(j *api.JobListStub) string { return j.ID })
}

func (s *Server) getJob(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	j := s.jobs[id]
	if j == nil {
		return nil, notFound("job")
	}
	setIndex(w, s.index)
	return j.full(), nil
}

func (s *Server) deregister(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	j := s.jobs[id]
	if j == nil {
		return nil, notFound("job")
	}
	if !j.gone {
		if err := s.World.Delete(j.unit.ID); err != nil {
			return nil, err
		}
	}
	j.stopped, j.modify = true, s.next()
	if r.URL.Query().Get("purge") == "true" {
		s.purge(id)
	} else {
		s.emit(api.TopicJob, "JobDeregistered", id, nil, map[string]any{"Job": j.full()})
		s.emitDeregistered(id)
	}
	setIndex(w, s.index)
	return api.JobDeregisterResponse{EvalID: "e", JobModifyIndex: s.index}, nil
}

func (j *job) status() string {
	switch {
	case j.gone || j.unit.Over():
		return "dead"
	case j.unit.Phase == podgroup.Pending:
		return "pending"
	}
	return "running"
}

func (j *job) full() *api.Job {
	spec := *j.spec
	spec.Stop, spec.Status, spec.CreateIndex, spec.ModifyIndex, spec.JobModifyIndex = new(j.stopped), new(j.status()), new(j.create), new(j.modify), new(j.create)
	spec.SubmitTime = new(j.unit.Created.UnixNano())
	return &spec
}

var (
	portLabel  = regexp.MustCompile(`^[a-zA-Z0-9_]{1,}$`)
	jobID      = regexp.MustCompile(`^\S+$`)
	hclEscapes = strings.NewReplacer("$${", "", "%%{", "")
	configKeys = map[string][]string{
		"docker": {"image", "args", "auth", "cap_add", "cap_drop", "entrypoint", "force_pull", "privileged", "readonly_rootfs", "volumes", "work_dir"},
		"podman": {"image", "args", "auth", "cap_add", "cap_drop", "entrypoint", "force_pull", "privileged", "readonly_rootfs", "volumes", "working_dir"},
	}
)

// validate refuses what Nomad refuses when a job is registered, or when its tasks start.
func (s *Server) validate(j *api.Job) error {
	if !jobID.MatchString(*j.ID) || value(j.Namespace) != s.Namespace {
		return invalid("job ID %q, namespace %q", *j.ID, value(j.Namespace))
	}
	if t := value(j.Type); t != api.JobTypeBatch && t != api.JobTypeService {
		return invalid("Invalid job type: %q", t)
	}
	if len(j.Datacenters) == 0 || len(j.TaskGroups) != 1 || value(j.TaskGroups[0].Count) != 1 {
		return invalid("Job must be in at least one datacenter, with one group of one")
	}
	g := j.TaskGroups[0]
	policies := []*api.RestartPolicy{g.RestartPolicy}
	names := map[string]bool{}
	for _, t := range g.Tasks {
		if t.Name == "" || strings.ContainsAny(t.Name, `/\`) || names[t.Name] {
			return invalid("task name %q", t.Name)
		}
		names[t.Name] = true
		if t.RestartPolicy != nil {
			policies = append(policies, t.RestartPolicy)
		}
		if err := validateTask(t); err != nil {
			return err
		}
	}
	for _, p := range policies {
		switch {
		case value(p.Mode) != "fail" && value(p.Mode) != "delay":
			return invalid("Unsupported restart mode: %q", value(p.Mode))
		case value(p.Attempts) == 0 && value(p.Mode) != "fail":
			return invalid("Restart policy %q with 0 attempts is ambiguous", value(p.Mode))
		case value(p.Interval) < 5*time.Second:
			return invalid("Interval can not be less than 5s")
		case time.Duration(value(p.Attempts))*value(p.Delay) > value(p.Interval):
			return invalid("Nomad can't restart the TaskGroup that often in that interval")
		}
	}
	ports := map[string]bool{}
	for _, n := range g.Networks {
		for _, p := range slices.Concat(n.ReservedPorts, n.DynamicPorts) {
			if !portLabel.MatchString(p.Label) || ports[p.Label] {
				return invalid("port label %q already in use, or invalid", p.Label)
			}
			ports[p.Label] = true
		}
		if n.Hostname != "" && n.Mode != "bridge" {
			return invalid("hostname is not supported in network mode %s", n.Mode)
		}
	}
	return nil
}

func validateTask(t *api.Task) error {
	known, ok := configKeys[t.Driver]
	if !ok {
		return invalid("driver %q", t.Driver)
	}
	for key, v := range t.Config {
		if !slices.Contains(known, key) {
			return invalid("No argument or block type is named %q", key)
		}
		if rest := hclEscapes.Replace(fmt.Sprint(v)); strings.Contains(rest, "${") || strings.Contains(rest, "%{") {
			return invalid("failed to parse config: %s has an expression", key)
		}
	}
	if fmt.Sprint(t.Config["image"]) == "" {
		return invalid("image is required")
	}
	if r := t.Resources; r != nil {
		if r.CPU != nil && *r.CPU < 1 || r.MemoryMB != nil && *r.MemoryMB < 10 || r.MemoryMaxMB != nil && (r.MemoryMB == nil || *r.MemoryMaxMB < *r.MemoryMB) {
			return invalid("resources of task %s", t.Name)
		}
	}
	for _, tmpl := range t.Templates {
		if dest := value(tmpl.DestPath); dest == "" || strings.Contains(dest, "..") || strings.Contains(dest, "${") {
			return invalid("template destination %q escapes", dest)
		}
		if value(tmpl.ChangeMode) != "noop" {
			return invalid("a template with change_mode %q restarts the task", value(tmpl.ChangeMode))
		}
	}
	return nil
}

// render writes the templates of a job, as the client does. The caller may hold s.mu.
func (s *Server) render(j *api.Job) map[string]volume.Files {
	files := map[string]volume.Files{}
	for _, t := range j.TaskGroups[0].Tasks {
		for _, tmpl := range t.Templates {
			dir, name, _ := strings.Cut(strings.TrimPrefix(value(tmpl.DestPath), "private/vk/"), "/")
			if files[dir] == nil {
				files[dir] = volume.Files{}
			}
			files[dir][name] = volume.File{Data: s.execute(*j.ID, t.Name, value(tmpl.EmbeddedTmpl))}
		}
	}
	return files
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
