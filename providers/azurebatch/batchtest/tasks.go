package batchtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Task is the Data of a unit.
type Task struct {
	azbatch.CreateTaskContent
	// Label is the display name.
	Label struct {
		Tags             map[string]string
		Init, Containers []string
		Script           bool
		Restart          string
	}
	// Requeued is when a user had it wait again.
	Requeued time.Time
	// Recovered is when it was to run again because its machine was lost, which Batch does
	// not count.
	Recovered time.Time
}

var (
	idRule   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	duration = regexp.MustCompile(`^P(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?$`)
)

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// wrong returns what the service refuses of a task; empty if nothing.
func (s *Server) wrong(t *azbatch.CreateTaskContent) string {
	resources, _ := json.Marshal(t.ResourceFiles)
	c := t.Constraints
	switch {
	case !idRule.MatchString(deref(t.ID)):
		return "id"
	case t.CommandLine == nil:
		return "commandLine"
	case len([]rune(deref(t.DisplayName))) > 1024:
		return "displayName"
	case len(resources) > 32768:
		return "Total size of resourceFiles cannot be more than 32768 characters"
	case c != nil && (deref(c.MaxTaskRetryCount) < -1 || !duration.MatchString(deref(c.RetentionTime))):
		return "constraints"
	case deref(t.RequiredSlots) < 1 || deref(t.RequiredSlots) > 4:
		return "requiredSlots"
	case (t.ContainerSettings != nil) != s.Containers:
		return "containerSettings"
	case t.UserIdentity != nil && (t.UserIdentity.AutoUser == nil) == (t.UserIdentity.Username == nil):
		return "userIdentity"
	}
	names := map[string]bool{}
	for _, e := range t.EnvironmentSettings {
		if deref(e.Name) == "" || names[*e.Name] {
			return "environmentSettings"
		}
		names[*e.Name] = true
	}
	if cs := t.ContainerSettings; cs != nil {
		if deref(cs.ImageName) == "" {
			return "imageName"
		}
		if strings.Contains(deref(cs.ContainerRunOptions), "--gpus") { // the machine does, with ContainerInvalidSettings
			return "containerRunOptions"
		}
		if cs.Registry != nil && cs.Registry.IdentityReference == nil && (deref(cs.Registry.Username) == "" || deref(cs.Registry.Password) == "") {
			return "registry"
		}
	}
	return ""
}

// hasJob reports whether the job of a call exists.
func (s *Server) hasJob(r *http.Request) error {
	_, err := s.jobState(r)
	return err
}

// jobState returns the state of the job of a call.
func (s *Server) jobState(r *http.Request) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.jobs[r.PathValue("job")]
	if !ok {
		return "", refuse(http.StatusNotFound, "JobNotFound", "The specified job does not exist.")
	}
	return state, nil
}

func (s *Server) add(r *http.Request, _ http.Header) (int, any, error) {
	var group azbatch.TaskGroup
	if err := json.NewDecoder(r.Body).Decode(&group); err != nil {
		return 0, nil, err
	}
	switch state, err := s.jobState(r); {
	case err != nil:
		return 0, nil, err
	case state == "terminating":
		return 0, nil, refuse(http.StatusConflict, "JobBeingTerminated", "The specified job is being terminated.")
	case state == "completed":
		return 0, nil, refuse(http.StatusConflict, "JobCompleted", "The specified job is already in a completed state.")
	}
	if len(group.Value) == 0 || len(group.Value) > 100 {
		return 0, nil, refuse(http.StatusBadRequest, "InvalidPropertyValue", "value: 1 to 100 tasks")
	}
	results := []any{}
	for i := range group.Value {
		result := map[string]any{"taskId": deref(group.Value[i].ID), "status": "success"}
		err := s.World.Serve(r.Context(), ActionTask, func() error { return s.addOne(&group.Value[i]) })
		refused, ok := err.(*grouptest.Refusal)
		switch {
		case ok && refused.Status < 500:
			result["status"], result["error"] = "clientError", errorOf(refused.Code, refused.Message)
		case ok:
			result["status"], result["error"] = "serverError", errorOf(refused.Code, refused.Message)
		case err != nil: // the whole answer is lost, or there were too many calls
			return 0, nil, err
		}
		results = append(results, result)
	}
	slices.Reverse(results) // in no order
	return http.StatusOK, map[string]any{"value": results}, nil
}

func (s *Server) addOne(content *azbatch.CreateTaskContent) error {
	if reason := s.wrong(content); reason != "" {
		return refuse(http.StatusBadRequest, "InvalidPropertyValue", reason)
	}
	if _, err := s.find(*content.ID); err == nil {
		return refuse(http.StatusConflict, "TaskExists", "The specified task already exists.")
	}
	t := &Task{CreateTaskContent: *content}
	_ = json.Unmarshal([]byte(deref(content.DisplayName)), &t.Label) // a name of another kind
	spec := grouptest.Spec{Tags: t.Label.Tags, Data: t, RestartPolicy: "Never"}
	if t.Label.Script {
		spec.RestartPolicy = t.Label.Restart
	} else if content.Constraints != nil && deref(content.Constraints.MaxTaskRetryCount) != 0 {
		spec.RestartPolicy = "OnFailure"
	}
	for _, name := range t.Label.Init {
		spec.InitContainers = append(spec.InitContainers, podgroup.Container{Name: name})
	}
	for _, name := range t.Label.Containers {
		spec.Containers = append(spec.Containers, podgroup.Container{Name: name})
	}
	_, err := s.World.Create(spec)
	return err
}

// idOf is the ID of a unit's task. A test may have a second unit of a pod.
func idOf(u *grouptest.Unit, before map[string]bool) string {
	id := deref(u.Spec.Data.(*Task).ID)
	for n := 2; before[id]; n++ {
		id = fmt.Sprintf("%s-%d", deref(u.Spec.Data.(*Task).ID), n)
	}
	before[id] = true
	return id
}

// find returns the unit of a task: IDs are the same but for capitals.
func (s *Server) find(id string) (grouptest.Unit, error) {
	before := map[string]bool{}
	for _, u := range s.World.Units(nil) {
		if strings.EqualFold(idOf(&u, before), id) {
			return u, nil
		}
	}
	return grouptest.Unit{}, refuse(http.StatusNotFound, "TaskNotFound", "The specified task does not exist.")
}

// ofCall returns the unit of the task of a call.
func (s *Server) ofCall(r *http.Request) (grouptest.Unit, error) {
	if err := s.hasJob(r); err != nil {
		return grouptest.Unit{}, err
	}
	return s.find(r.PathValue("task"))
}

func (s *Server) get(r *http.Request, header http.Header) (int, any, error) {
	u, err := s.ofCall(r)
	if err != nil {
		return 0, nil, err
	}
	header.Set("ETag", etag(&u))
	some, err := selected(r, view(&u, r.PathValue("task")))
	return http.StatusOK, some, err
}

func etag(u *grouptest.Unit) string { return `"0x` + strconv.FormatInt(u.Changed.UnixNano(), 16) + `"` }

// matches checks the condition of a call.
func matches(r *http.Request, u *grouptest.Unit) error {
	if want := r.Header.Get("If-Match"); want != "" && want != "*" && want != etag(u) {
		return refuse(http.StatusPreconditionFailed, "ConditionNotMet", "If-Match")
	}
	return nil
}

func (s *Server) delete(r *http.Request, _ http.Header) (int, any, error) {
	u, err := s.ofCall(r)
	if err == nil {
		err = matches(r, &u)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, nil, s.World.Kill(u.ID) // it is gone at once
}

func (s *Server) terminate(r *http.Request, _ http.Header) (int, any, error) {
	u, err := s.ofCall(r)
	if err == nil {
		err = matches(r, &u)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case u.Over():
		return 0, nil, refuse(http.StatusConflict, "TaskCompleted", "The specified task is already in a completed state.")
	}
	return http.StatusNoContent, nil, s.World.Change(u.Tags[podgroup.TagPodName], func(of *grouptest.Unit) {
		if of.ID == u.ID { // not another one of the pod
			of.Phase, of.Ended = podgroup.Failed, s.now()
		}
	})
}

// now is for a World that is locked.
func (s *Server) now() time.Time { return time.Now() }

// Requeue has a user remove the machine of a pod: its task waits again.
func (s *Server) Requeue(pod string) error {
	return s.World.Change(pod, func(u *grouptest.Unit) {
		u.Spec.Data.(*Task).Requeued = time.Now()
		begin(u, podgroup.Run{})
	})
}

// Recover has the machine of a pod be lost: its task waits again, or runs at once.
func (s *Server) Recover(pod string, runs bool) error {
	return s.World.Change(pod, func(u *grouptest.Unit) {
		u.Spec.Data.(*Task).Recovered = time.Now()
		if begin(u, podgroup.Run{}); runs {
			begin(u, podgroup.Run{State: podgroup.Executing, Started: time.Now()})
		}
	})
}

// begin has all containers of a task begin again.
func begin(u *grouptest.Unit, with podgroup.Run) {
	if u.Phase = podgroup.Pending; with.State == podgroup.Executing {
		u.Phase = podgroup.Running
	}
	for i := range u.Containers {
		u.Containers[i].Now = with
	}
}

func (s *Server) list(r *http.Request, _ http.Header) (int, any, error) {
	q := r.URL.Query()
	limit := s.PageSize
	if text := q.Get("maxresults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return 0, nil, refuse(http.StatusBadRequest, "OutOfRangeQueryParameterValue", "maxresults")
		}
		limit = min(limit, n)
	}
	if q.Get("$filter")+q.Get("$expand") != "" {
		return 0, nil, refuse(http.StatusBadRequest, "InvalidQueryParameterValue", "$filter, $expand")
	}
	if err := s.hasJob(r); err != nil {
		return 0, nil, err
	}
	units, next, err := s.World.Page(s.World.Units(nil), q.Get("$skiptoken"), limit)
	if err != nil {
		return 0, nil, err
	}
	list, before := []any{}, map[string]bool{}
	for i := range units {
		some, err := selected(r, view(&units[i], idOf(&units[i], before)))
		if err != nil {
			return 0, nil, err
		}
		list = append(list, some)
	}
	answer := map[string]any{"odata.metadata": "https://" + r.Host + "/$metadata#tasks", "value": list}
	if next != "" {
		q.Set("$skiptoken", next)
		answer["odata.nextLink"] = (&url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: q.Encode()}).String()
	}
	return http.StatusOK, answer, nil
}

func timeOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

// view is what Batch shows of a task.
func view(u *grouptest.Unit, id string) map[string]any {
	t := u.Spec.Data.(*Task)
	state := map[podgroup.Phase]string{podgroup.Pending: "active", podgroup.Running: "running", podgroup.Succeeded: "completed", podgroup.Failed: "completed"}[u.Phase]
	info := map[string]any{"retryCount": 0, "requeueCount": 0}
	changed := u.Created
	var code *int32
	var first time.Time // when the task has started
	for i, c := range u.Containers {
		start := c.Now.Started
		if t.Label.Script && !c.Last.Started.IsZero() {
			start = c.Last.Started
		}
		if !start.IsZero() && (first.IsZero() || start.Before(first)) {
			first = start
			info["startTime"], changed = timeOf(start), start
		}
		if i < len(u.Spec.InitContainers) {
			continue
		}
		if !t.Label.Script {
			info["retryCount"] = c.Restarts
		}
		if c.Now.State == podgroup.Terminated && (code == nil || *code == 0) {
			code = &c.Now.ExitCode
		}
	}
	if !t.Requeued.IsZero() {
		info["requeueCount"], info["lastRequeueTime"], code = 1, timeOf(t.Requeued), nil
	}
	if u.Over() {
		info["endTime"], info["result"], changed = timeOf(u.Ended), "success", u.Ended
		if code != nil {
			info["exitCode"] = *code
		}
		if code == nil || *code != 0 {
			failure := map[string]any{"category": "userError", "code": "FailureExitCode", "message": "The task exited with an exit code representing a failure"}
			if code == nil {
				failure["code"], failure["message"] = "TaskEnded", "Task was ended by user request"
				if n := len(u.Events); n > 0 {
					failure["code"], failure["message"] = u.Events[n-1].Reason, u.Events[n-1].Message
				}
			}
			info["result"], info["failureInfo"] = "failure", failure
		}
	}
	all := map[string]any{
		"id": id, "url": "https://pods.westeurope.batch.azure.com/tasks/" + id, "eTag": etag(u), "creationTime": timeOf(u.Created), "lastModified": timeOf(u.Changed),
		"state": state, "stateTransitionTime": timeOf(changed), "executionInfo": info, "nodeInfo": nil, "previousState": nil,
	}
	switch {
	case state == "running":
		all["previousState"] = "active"
	case state == "completed" || !t.Requeued.IsZero() || !t.Recovered.IsZero():
		all["previousState"] = "running"
	}
	if state != "active" {
		all["nodeInfo"] = map[string]any{"poolId": Pool, "nodeId": node, "taskRootDirectory": "workitems/job/" + id}
	}
	for name, value := range map[string]any{
		"displayName": t.DisplayName, "commandLine": t.CommandLine, "environmentSettings": t.EnvironmentSettings, "constraints": t.Constraints,
		"containerSettings": t.ContainerSettings, "requiredSlots": t.RequiredSlots, "userIdentity": t.UserIdentity, "resourceFiles": t.ResourceFiles,
	} {
		all[name] = value
	}
	return all
}

// file is a file of a task, or a range of it.
func (s *Server) file(r *http.Request, header http.Header) (int, any, error) {
	u, err := s.ofCall(r)
	if err != nil {
		return 0, nil, err
	}
	text, ok := s.text(&u, r.PathValue("file"))
	switch {
	case s.NoFiles:
		return 0, nil, refuse(http.StatusConflict, "TaskFilesUnavailable", "The files of the specified task are unavailable.")
	case !ok:
		return 0, nil, refuse(http.StatusNotFound, "FileNotFound", "The specified file does not exist.")
	}
	header.Set("Last-Modified", s.World.Now().UTC().Format(http.TimeFormat))
	header.Set("ocp-batch-file-isdirectory", "False")
	header.Set("ocp-batch-file-mode", "100644")
	ranges := r.Header.Get("ocp-range")
	if ranges == "" {
		return http.StatusOK, text, nil
	}
	var from, to int
	if n, err := fmt.Sscanf(ranges, "bytes=%d-%d", &from, &to); n != 2 || err != nil || from > to {
		return 0, nil, refuse(http.StatusBadRequest, "InvalidHeaderValue", "ocp-range")
	}
	if from >= len(text) {
		return 0, nil, refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", ranges)
	}
	return http.StatusOK, text[from:min(to+1, len(text))], nil
}

// text returns a file of a unit: what Batch or the script of the task writes.
func (s *Server) text(u *grouptest.Unit, name string) (text string, ok bool) {
	t := u.Spec.Data.(*Task)
	if text, ok := s.Files[deref(t.ID)+"/"+name]; ok {
		return text, true
	}
	if u.Phase == podgroup.Pending || u.Over() && s.World.Now().Sub(u.Ended) > retention(t) {
		return "", false
	}
	if !t.Label.Script {
		if name == "stdout.txt" {
			return s.lines(u, t.Label.Containers[0], 0, false), true
		}
		return "", name == "stderr.txt"
	}
	if name == "wd/state.txt" {
		return stateOf(u), true
	}
	for _, c := range u.Containers {
		for run := range c.Restarts + 1 {
			if name == fmt.Sprintf("wd/logs/%s.%d.log", c.Name, run) {
				return s.lines(u, c.Name, c.Restarts-run, true), true
			}
		}
	}
	return "", false
}

// retention is how long files are kept.
func retention(t *Task) time.Duration {
	if t.Constraints != nil && t.Constraints.RetentionTime != nil {
		if d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(*t.Constraints.RetentionTime, "PT"))); err == nil {
			return d
		}
	}
	return 7 * 24 * time.Hour
}

// lines is a log of a container: that of so many runs ago.
func (s *Server) lines(u *grouptest.Unit, container string, ago int32, stamps bool) string {
	lines, err := s.World.Log(u.ID, container, ago > 0)
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, l := range lines {
		if stamps {
			text.WriteString(l.At.UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(l.Text + "\n")
	}
	return text.String()
}

// stateOf is what the script of a task writes: it adds lines only.
func stateOf(u *grouptest.Unit) string {
	var lines []grouptest.Line
	add := func(at time.Time, format string, args ...any) {
		lines = append(lines, grouptest.Line{At: at, Text: fmt.Sprintf(format+" \n", args...)})
	}
	for _, c := range u.Containers {
		exited := func(run int32, r podgroup.Run) {
			add(r.Finished, "%s %d exited %d %s %s %s", c.Name, run, r.ExitCode, r.Reason, r.Started.UTC().Format(time.RFC3339), r.Finished.UTC().Format(time.RFC3339))
		}
		if c.Last.State == podgroup.Terminated {
			add(c.Last.Started, "%s %d running %s", c.Name, c.Restarts-1, c.Last.Started.UTC().Format(time.RFC3339))
			exited(c.Restarts-1, c.Last)
		}
		if !c.Now.Started.IsZero() {
			add(c.Now.Started, "%s %d running %s", c.Name, c.Restarts, c.Now.Started.UTC().Format(time.RFC3339))
		}
		if c.Now.State == podgroup.Terminated {
			exited(c.Restarts, c.Now)
		}
	}
	slices.SortStableFunc(lines, func(a, b grouptest.Line) int { return a.At.Compare(b.At) })
	text := ""
	for _, l := range lines {
		text += l.Text
	}
	return text
}
