package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// job is what Slurm says of a job.
type job struct {
	id, state, reason       string
	submitted, start, ended time.Time
	name, comment           string
}

// isOver reports whether it has ended, by the states of squeue and sacct, which may say more
// after them: CANCELLED by 1000. One that is REVOKED was begun by another cluster of a federation.
func (j *job) isOver() bool {
	state, _, _ := strings.Cut(j.state, " ")
	return slices.Contains([]string{
		"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL",
	}, state)
}

// waits reports whether it is in the queue, for the first time or again.
func (j *job) waits() bool {
	return j.state == "PENDING" || j.state == "RESV_DEL_HOLD" || j.state == "SPECIAL_EXIT" || strings.HasPrefix(j.state, "REQUEUE")
}

// runs reports whether it has its machines.
func (j *job) runs() bool { return !j.waits() && !j.isOver() }

// state is what is written in the directory of a pod.
type state struct {
	name       string
	tags       map[string]string
	created    time.Time
	job        string // as it was submitted
	begun      string // the job that runs the containers
	host, ip   string
	containers []podgroup.Container
	deleted    bool
	stopped    time.Time // when Slurm asked the script to stop
	end        time.Time
}

// listing is what the verb list prints.
type listing struct {
	now     time.Time
	jobs    []job
	missing bool              // there is no directory of all pods
	states  map[string]*state // by the name of the directory
}

// parseListing reads what the verb list prints.
func parseListing(text string) (*listing, error) {
	l := &listing{states: map[string]*state{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch kind, rest, _ := strings.Cut(line, " "); {
		case kind == "now" && l.now.IsZero():
			l.now = parseTime(rest)
		case kind == "row":
			fields := strings.SplitN(rest, "|", 9)
			if len(fields) < 7 {
				return nil, fmt.Errorf("squeue printed what is no job: %q", line)
			}
			if len(fields) < 9 { // others' jobs have line ends in their names, which go on in lines of no kind
				continue
			}
			l.jobs = append(l.jobs, job{
				id: fields[0], state: fields[1], submitted: parseTime(fields[2]), start: parseTime(fields[3]), ended: parseTime(fields[4]),
				reason: fields[6], name: fields[7], comment: fields[8],
			})
		case line == "missing":
			l.missing = true
		case strings.HasPrefix(line, "./"):
			name, event, ok := strings.Cut(line[2:], "/state:")
			if !ok {
				continue
			}
			if l.states[name] == nil {
				l.states[name] = &state{name: name}
			}
			l.states[name].add(event)
		}
	}
	if l.now.IsZero() {
		return nil, errors.New("the list of jobs is incomplete")
	}
	l.missing = l.missing && len(l.states) == 0 // else it is of a text of another job
	return l, nil
}

// checkRoot returns an error if jobs of pods with these tags go on and no pod has a directory: the file
// system is not mounted. Another node may have another root.
func (l *listing) checkRoot(tags map[string]string) error {
	if len(l.states) > 0 {
		return nil
	}
	for i := range l.jobs {
		j := &l.jobs[i]
		found := tagsOf(j.comment)
		for name, value := range tags {
			if found[name] != value {
				found = nil
			}
		}
		if found[podgroup.TagUID] != "" && (j.runs() || l.missing && !j.isOver()) {
			return fmt.Errorf("job %s is a pod's, and no pod has a directory: is the file system with the field root mounted?", j.id)
		}
	}
	return nil
}

// parseTime reads a time of Slurm or of the script; zero if there is none.
func parseTime(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// add reads a line of a state. A line of another version, or one that was not written to
// its end, is ignored.
func (s *state) add(line string) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return
	}
	field := func(i int) string {
		if i < len(fields) {
			return fields[i]
		}
		return ""
	}
	switch fields[0] {
	case "tags":
		s.tags = tagsOf(strings.TrimPrefix(line, "tags "))
	case "created":
		s.created = parseTime(fields[1])
	case "job":
		s.job = fields[1]
	case "begun":
		s.begun, s.host, s.ip = fields[1], field(2), field(3)
	case "container":
		s.containers = append(s.containers, podgroup.Container{Name: fields[1], Image: field(2)})
	case "deleted":
		s.deleted = true
	case "end":
		s.end = parseTime(fields[1])
	case "stopped":
		s.stopped = parseTime(fields[1])
	case "start", "exit", "again":
		i := slices.IndexFunc(s.containers, func(c podgroup.Container) bool { return c.Name == fields[1] })
		if i >= 0 {
			change(&s.containers[i], fields[0], field(2), field(3), field(4))
		}
	}
}

// change applies an event to a container.
func change(c *podgroup.Container, event, run, a, b string) {
	switch event {
	case "start":
		if c.Now.State == podgroup.Terminated {
			c.Last = c.Now
		}
		n, _ := strconv.Atoi(run)
		c.Restarts = int32(n) //nolint:gosec // a counter
		c.Now = podgroup.Run{State: podgroup.Executing, Started: parseTime(a)}
	case "exit":
		code, _ := strconv.Atoi(a)
		c.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: int32(code), Started: c.Now.Started, Finished: parseTime(b)} //nolint:gosec // a byte
	case "again":
		c.Last = c.Now
		c.Now = podgroup.Run{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container " + c.Name}
	}
}

// owner is the job of a pod.
func (s *state) owner() string {
	if s.begun != "" {
		return s.begun
	}
	return s.job
}

// units returns the units, and the names of directories that are to be removed: of pods that
// were deleted and whose jobs have ended, and of those whose creation has failed long ago.
// final reports whether to believe that a job has ended without a word.
func (l *listing) units(final func(j *job) bool) (units []podgroup.Unit, left []string) {
	jobs := map[string]*job{}
	for i := range l.jobs {
		j := &l.jobs[i]
		jobs[j.id] = j
		s := l.states[j.name]
		switch tags := tagsOf(j.comment); {
		case s != nil && (s.owner() == j.id || s.owner() == ""): // below
		case j.isOver(), tags[podgroup.TagUID] == "":
		default: // a second job of a pod, or one whose directory is gone
			u := podgroup.Unit{ID: j.id, Tags: tags, Data: j.name, Created: j.submitted, Phase: podgroup.Pending}
			if s == nil && j.runs() {
				u.Phase = podgroup.Running
			}
			units = append(units, u)
		}
	}
	for name, s := range l.states {
		j := jobs[s.owner()]
		if j != nil && j.name != name { // the number was used again
			j = nil
		}
		if s.owner() == "" {
			j = l.named(name)
		}
		switch {
		case s.owner() == "" && j == nil:
			if !s.created.IsZero() && l.now.Sub(s.created) > 10*time.Minute { // else it is being written
				left = append(left, name)
			}
		case s.deleted && (j == nil || j.isOver()) && (s.begun == "" || s.isOld(j, l.now)):
			left = append(left, name)
		case s.tags != nil:
			units = append(units, s.unit(j, l.now, final))
		}
	}
	slices.Sort(left)
	return units, left
}

// isOld reports whether the end of a pod that was deleted was shown long enough.
func (s *state) isOld(j *job, now time.Time) bool {
	end := s.end
	if end.IsZero() && j != nil {
		end = j.ended
	}
	return now.Sub(end) > 15*time.Second
}

// named returns the job of a name, which was submitted without an answer.
func (l *listing) named(name string) *job {
	for i := range l.jobs {
		if l.jobs[i].name == name {
			return &l.jobs[i]
		}
	}
	return nil
}

// forgotten returns the jobs that squeue no longer has, of pods that have not ended.
func (l *listing) forgotten() (ids []string) {
	for _, s := range l.states {
		id := s.owner()
		if id != "" && s.end.IsZero() && !slices.ContainsFunc(l.jobs, func(j job) bool { return j.id == id && j.name == s.name }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// addAccounting adds the jobs that have ended of those that sacct prints: for ever some are RUNNING there
// that slurmctld no longer knows.
func (l *listing) addAccounting(text string) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) < 4 {
			continue
		}
		j := job{id: fields[0], state: fields[1], ended: parseTime(fields[2]), name: fields[3]}
		for name, s := range l.states {
			if s.owner() == j.id && name == j.name && j.isOver() { // the number may be used again
				l.jobs = append(l.jobs, j)
			}
		}
	}
}

// unit returns the unit of a pod from its state and its job, which may be unknown.
func (s *state) unit(j *job, now time.Time, final func(j *job) bool) podgroup.Unit {
	u := podgroup.Unit{ID: s.owner(), Tags: s.tags, Data: s.name, Created: s.created, Containers: s.containers}
	if s.ip != "" {
		u.IPs = []string{s.ip}
	}
	isRequeued := j != nil && s.begun != "" && !j.runs() && !j.isOver() // its next run does nothing
	isKnownOver := j != nil && (j.isOver() || isRequeued)
	over := j == nil || isKnownOver
	if j == nil {
		j = &job{id: u.ID}
	}
	u.ID = j.id
	// Why a job that is not listed was ended is not known either: it may be younger than
	// squeue's answer, which comes before the states.
	if since := s.interrupted(now); !since.IsZero() && !s.deleted && !isKnownOver {
		s.hold(since)
	}
	switch {
	case !s.end.IsZero():
		u.Ended, u.Phase = s.end, podgroup.Succeeded
		for i := range u.Containers {
			if c := &u.Containers[i].Now; c.State != podgroup.Terminated || c.ExitCode != 0 {
				u.Phase = podgroup.Failed
			}
		}
		u.Failure = failureOf(j, u.Phase)
	case over && (s.deleted || s.begun == "" && j.state != "" || final(j)):
		u.Ended, u.Phase = j.ended, podgroup.Failed
		if u.Ended.IsZero() {
			u.Ended = s.created
		}
		if u.Failure = failureOf(j, u.Phase); u.Failure == nil {
			u.Failure = &podspec.Failure{Reason: "JobEnded", Message: fmt.Sprintf("Job %s has ended, and its script has not written how its containers have: %s", j.id, stateText(j.state))}
		}
	case s.begun != "":
		u.Phase = podgroup.Running
	default:
		s.waits(&u, j)
	}
	if j.state == "OUT_OF_MEMORY" {
		killedForMemory(u.Containers)
	}
	if s.deleted && !u.Over() {
		u.Phase = podgroup.Stopping
	}
	return u
}

// interrupted returns since when containers may have ended because Slurm ends their job; zero if
// nothing speaks for that. It asks the script to stop, and the containers may end a moment before
// the script has noticed; or it kills all of them, and one may be seen dead while others live.
func (s *state) interrupted(now time.Time) (since time.Time) {
	const (
		asked  = time.Minute
		killed = 15 * time.Second
		early  = 2 * time.Second
		code   = 128 + 9 // SIGKILL
	)
	if !s.stopped.IsZero() && now.Sub(s.stopped) < asked {
		return s.stopped.Add(-early)
	}
	for i := range s.containers {
		c := &s.containers[i].Now
		if c.State == podgroup.Terminated && c.ExitCode == code && now.Sub(c.Finished) < killed && (since.IsZero() || c.Finished.Before(since)) {
			since = c.Finished
		}
	}
	return since
}

// hold takes back what has ended since Slurm has begun to end the job: why it did, squeue
// says when all has ended, and a pod that has failed does not get another reason.
func (s *state) hold(since time.Time) {
	s.end = time.Time{}
	for i := range s.containers {
		if c := &s.containers[i].Now; c.State == podgroup.Terminated && !c.Finished.Before(since) {
			*c = podgroup.Run{State: podgroup.Executing, Started: c.Started}
		}
	}
}

// waits says why a job has not begun.
func (s *state) waits(u *podgroup.Unit, j *job) {
	if !j.waits() {
		return
	}
	message := fmt.Sprintf("Job %s is in the queue: %s", j.id, j.reason)
	for i := range u.Containers {
		u.Containers[i].Now.Message = message
	}
	u.Events = append(u.Events, podgroup.Event{Type: "Normal", Reason: "JobQueued", Message: message, At: j.submitted})
}

func stateText(state string) string {
	if state == "" {
		return "Slurm no longer knows it"
	}
	return "its state is " + state
}

// failureOf returns why Slurm has ended a job, or nil if it is the containers' matter.
func failureOf(j *job, phase podgroup.Phase) *podspec.Failure {
	state, _, _ := strings.Cut(j.state, " ")
	message := fmt.Sprintf("Slurm has ended job %s: its state is %s", j.id, j.state)
	switch state {
	case "PREEMPTED":
		return &podspec.Failure{Reason: "Preempted", Message: message, Disrupted: true}
	case "NODE_FAIL", "BOOT_FAIL":
		return &podspec.Failure{Reason: "NodeFailure", Message: message, Disrupted: true}
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT":
		return &podspec.Failure{Reason: "JobRequeued", Message: fmt.Sprintf("Job %s was queued again; a pod runs once", j.id), Disrupted: true}
	case "TIMEOUT", "DEADLINE":
		if phase == podgroup.Failed {
			return &podspec.Failure{Reason: "DeadlineExceeded", Message: message}
		}
	case "CANCELLED":
		if phase == podgroup.Failed {
			return &podspec.Failure{Reason: "JobCancelled", Message: message}
		}
	}
	return nil
}

// killedForMemory gives containers that were killed the reason.
func killedForMemory(containers []podgroup.Container) {
	for i := range containers {
		if c := &containers[i].Now; c.State == podgroup.Terminated && c.ExitCode == 137 {
			c.Reason = "OOMKilled"
		}
	}
}
