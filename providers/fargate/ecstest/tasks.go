package ecstest

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// taskARN begins what an ARN has of a task. All have the first cluster in it.
const taskARN = "task/" + Cluster + "/"

// Task is what a unit of the World was created with.
type Task struct {
	Definition ecs.RegisterTaskDefinitionInput
	Run        ecs.RunTaskInput

	arn string // of the definition
}

// SetHealth sets the health of a container: HEALTHY or UNHEALTHY.
func (s *Server) SetHealth(id, container, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unhealthy[id+"/"+container] = status
}

// SetReason sets why a task has stopped, with the code of that.
func (s *Server) SetReason(id, code, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[id], s.reasons[id] = code, reason
}

// Interrupt has Spot stop the task of a pod.
func (s *Server) Interrupt(pod string) error {
	return s.World.Change(pod, func(u *grouptest.Unit) {
		u.Phase, u.Ended = podgroup.Failed, time.Now()
		for i := range u.Containers {
			u.Containers[i].Now.State, u.Containers[i].Now.ExitCode = podgroup.Terminated, 143
		}
		s.SetReason(u.ID, "SpotInterruption", "Your Spot Task was interrupted.")
	})
}

var (
	keyRule  = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]{1,128}$`)
	textRule = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256}$`)
)

func (s *Server) checkRun(in *ecs.RunTaskInput) error {
	network := in.NetworkConfiguration
	overrides, _ := json.Marshal(in.Overrides)
	switch {
	case (in.LaunchType == "") == (len(in.CapacityProviderStrategy) == 0):
		return invalid("Either a launch type or a capacity provider strategy can be specified.")
	case network == nil || network.AwsvpcConfiguration == nil || len(network.AwsvpcConfiguration.Subnets) == 0:
		return invalid("Network Configuration must be provided when networkMode 'awsvpc' is specified.")
	case in.ClientToken != nil && len(*in.ClientToken) > 64, len(*in.StartedBy) > 128, len(in.Tags) > 50, *in.Count != 1:
		return invalid("a length is not valid")
	case len(overrides) > 8192:
		return invalid("Container Overrides length must be at most 8192")
	}
	weights, bases := int32(0), 0
	for _, p := range in.CapacityProviderStrategy {
		if !slices.Contains([]string{"FARGATE", "FARGATE_SPOT"}, *p.CapacityProvider) || p.Weight < 0 || p.Weight > 1000 || p.Base < 0 || p.Base > 100_000 {
			return invalid("a capacity provider, its weight or its base is not valid")
		}
		weights, bases = weights+p.Weight, bases+int(min(p.Base, 1))
	}
	if len(in.CapacityProviderStrategy) > 0 && weights == 0 || bases > 1 {
		return invalid("At least one capacity provider must have a weight, and only one can have a base.")
	}
	for _, tag := range in.Tags {
		if !keyRule.MatchString(*tag.Key) || !textRule.MatchString(*tag.Value) || strings.HasPrefix(*tag.Key, "aws:") {
			return invalid("Some tags contain invalid characters.")
		}
	}
	return nil
}

func (s *Server) run(in ecs.RunTaskInput) (any, error) {
	if err := s.hasCluster(in.Cluster); err != nil {
		return nil, err
	}
	if err := s.checkRun(&in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	r := s.find(*in.TaskDefinition)
	s.mu.Unlock()
	if r == nil || !isActive(r) {
		return nil, client("TaskDefinition not found.")
	}
	if in.EnableExecuteCommand && r.TaskRoleArn == nil {
		return nil, invalid("The service couldn't be run because a valid taskRoleArn is not being used. Specify a valid task role in your task definition and try again.")
	}
	request, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	spec := grouptest.Spec{Request: string(request), Tags: map[string]string{}, RestartPolicy: "Never"}
	spec.Data = Task{r.RegisterTaskDefinitionInput, in, arn(definitionARN + r.name)}
	if in.ClientToken != nil {
		spec.Token = *in.ClientToken
	}
	for _, tag := range in.Tags {
		spec.Tags[*tag.Key] = *tag.Value
	}
	for _, c := range r.ContainerDefinitions {
		named := podgroup.Container{Name: *c.Name, Image: *c.Image}
		if !*c.Essential && c.RestartPolicy == nil {
			spec.InitContainers = append(spec.InitContainers, named)
			continue
		}
		spec.Containers = append(spec.Containers, named)
		if *c.Essential && c.RestartPolicy != nil {
			spec.RestartPolicy = map[bool]string{true: "OnFailure", false: "Always"}[len(c.RestartPolicy.IgnoredExitCodes) > 0]
		}
	}
	lacks, err := s.lacks(spec.Token, spec.Request)
	if err != nil {
		return nil, err
	}
	if lacks {
		return object{"tasks": []any{}, "failures": []any{object{"reason": "Capacity is unavailable at this time. Please try again later or in a different availability zone"}}}, nil
	}
	u, err := s.World.Create(spec)
	s.mu.Lock()
	if errors.Is(err, grouptest.ErrTokenReused) {
		err = tokenUsed{[]string{s.tokens[spec.Token]}}
	} else if err == nil {
		s.tokens[spec.Token] = arn(taskARN + u.ID)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if u.Over() { // the answer to a repetition
		return object{"tasks": []any{object{"taskArn": arn(taskARN + u.ID), "lastStatus": "STOPPED", "desiredStatus": "STOPPED"}}, "failures": []any{}}, nil
	}
	s.mu.Lock()
	if at := s.unstarted[u.ID]; s.failing > 0 && at.IsZero() {
		s.failing--
		s.unstarted[u.ID], s.codes[u.ID], s.reasons[u.ID] = s.World.Now(), "TaskFailedToStart", s.why
	}
	s.mu.Unlock()
	return object{"tasks": []any{s.view(&u, true)}, "failures": []any{}}, nil
}

// FailStarts has the next tasks end before their containers start.
func (s *Server) FailStarts(tasks int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing, s.why = tasks, why
}

// LackCapacity has the next requests to run a task find no capacity. Their repetitions, with the
// same token, are answered like them.
func (s *Server) LackCapacity(requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking = requests
}

// lacks reports whether a request with a token finds no capacity, or has found none. Another request
// with that token is refused.
func (s *Server) lacks(token, request string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, lacked := s.lacked[token]
	switch {
	case lacked && before != request:
		return false, tokenUsed{}
	case !lacked && s.lacking > 0:
		s.lacking--
		s.lacked[token], lacked = request, true
	}
	return lacked, nil
}

// stop stops a task, and deletes its tags.
func (s *Server) stop(in ecs.StopTaskInput) (any, error) {
	if err := s.hasCluster(in.Cluster); err != nil {
		return nil, err
	}
	id := strings.TrimPrefix(*in.Task, arn(taskARN))
	u, err := s.World.Unit(id)
	if errors.Is(err, grouptest.ErrNotFound) {
		return nil, invalid("The referenced task was not found.")
	}
	if len(*in.Reason) > 1024 {
		return nil, invalid("reason is too long")
	}
	s.mu.Lock()
	_, unstarted := s.unstarted[id]
	s.mu.Unlock()
	if !unstarted && !u.Over() && u.Phase != podgroup.Stopping {
		s.mu.Lock()
		s.reasons[id], s.untagged[id] = *in.Reason, true
		s.stopped = append(s.stopped, ended(u, s.World.Now()))
		s.mu.Unlock()
		err = s.World.Delete(id)
	}
	return object{"task": s.view(&u, false)}, err
}

// shownFor is how long tasks are shown that were stopped.
const shownFor = time.Hour

// ended returns a unit as it is once it was stopped.
func ended(u grouptest.Unit, at time.Time) grouptest.Unit {
	u.Phase, u.Ended = podgroup.Failed, at
	u.Containers = slices.Clone(u.Containers)
	for i := range u.Containers {
		if now := &u.Containers[i].Now; now.State == podgroup.Executing {
			now.State, now.ExitCode = podgroup.Terminated, 143
		}
	}
	return u
}

// units returns the units that match, with those that were stopped and are shown on.
func (s *Server) units(matches func(*grouptest.Unit) bool) []grouptest.Unit {
	all := s.World.Units(nil)
	s.mu.Lock()
	for i := range all {
		if at, ok := s.unstarted[all[i].ID]; ok {
			u := &all[i]
			u.Phase, u.Ended, u.IPs = podgroup.Failed, at, nil
			for j := range u.Containers {
				u.Containers[j].Now = podgroup.Run{}
			}
		}
	}
	stopped := slices.Clone(s.stopped)
	all = slices.DeleteFunc(all, func(u grouptest.Unit) bool {
		at, ok := s.unstarted[u.ID]
		return !matches(&u) || ok && s.World.Now().Sub(at) >= shownFor
	})
	s.mu.Unlock()
	for i := range stopped {
		u := &stopped[i]
		if _, err := s.World.Unit(u.ID); err != nil && s.World.Now().Sub(u.Ended) < shownFor && matches(u) {
			all = append(all, *u)
		}
	}
	return all
}

func (s *Server) list(in ecs.ListTasksInput) (any, error) {
	if err := s.hasCluster(in.Cluster); err != nil {
		return nil, err
	}
	token := ""
	if in.NextToken != nil {
		token = *in.NextToken
	}
	var units []grouptest.Unit
	if token == "" {
		units = s.units(func(u *grouptest.Unit) bool {
			return *u.Spec.Data.(Task).Run.Cluster == *in.Cluster && (u.Over() || u.Phase == podgroup.Stopping) == (in.DesiredStatus == types.DesiredStatusStopped)
		})
	}
	page, next, err := s.World.Page(units, token, 100)
	names := []string{}
	for i := range page {
		names = append(names, arn(taskARN+page[i].ID))
	}
	answer := object{"taskArns": names}
	if next != "" {
		answer["nextToken"] = next
	}
	return answer, err
}

func (s *Server) describe(in ecs.DescribeTasksInput) (any, error) {
	if err := s.hasCluster(in.Cluster); err != nil {
		return nil, err
	}
	if len(in.Tasks) > 100 {
		return nil, invalid("Tasks can have at most 100 items.")
	}
	wanted := map[string]bool{}
	for _, name := range in.Tasks {
		if parts := strings.Split(name, ":"); len(parts) > 5 && parts[4] != s.Account {
			return nil, invalid("Invalid identifier: Identifier is for " + parts[4] + ". Your accountId is " + s.Account)
		}
		wanted[strings.TrimPrefix(name, arn(taskARN))] = true
	}
	tasks, failures := []any{}, []any{}
	units := s.units(func(u *grouptest.Unit) bool { return wanted[u.ID] })
	for id := range wanted { // lists may lack it, descriptions do not
		if u, err := s.World.Unit(id); err == nil && !slices.ContainsFunc(units, func(u grouptest.Unit) bool { return u.ID == id }) {
			units = append(units, u)
		}
	}
	for _, u := range units {
		if in := *in.Cluster; *u.Spec.Data.(Task).Run.Cluster != in {
			return nil, invalid("Invalid identifier: Identifier is for cluster " + *u.Spec.Data.(Task).Run.Cluster + ". Your cluster is " + in)
		}
		delete(wanted, u.ID)
		tasks = append(tasks, s.view(&u, slices.Contains(in.Include, types.TaskFieldTags)))
	}
	for id := range wanted {
		failures = append(failures, object{"arn": arn(taskARN + id), "reason": "MISSING"})
	}
	return object{"tasks": tasks, "failures": failures}, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func overrides(in *types.TaskOverride) []any {
	list := []any{}
	if in == nil {
		return list
	}
	for _, c := range in.ContainerOverrides {
		env := []any{}
		for _, v := range c.Environment {
			env = append(env, object{"name": v.Name, "value": v.Value})
		}
		list = append(list, object{"name": c.Name, "environment": env})
	}
	return list
}

// view is what ECS shows of a task.
func (s *Server) view(u *grouptest.Unit, withTags bool) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, desired := "PROVISIONING", "RUNNING"
	switch u.Phase {
	case podgroup.Running:
		last = "RUNNING"
	case podgroup.Stopping:
		last, desired = "DEPROVISIONING", "STOPPED"
	case podgroup.Succeeded, podgroup.Failed:
		last, desired = "STOPPED", "STOPPED"
	}
	task := u.Spec.Data.(Task)
	view := object{
		"taskArn": arn(taskARN + u.ID), "taskDefinitionArn": task.arn, "lastStatus": last, "desiredStatus": desired,
		"createdAt": seconds(u.Created), "startedBy": task.Run.StartedBy, "enableExecuteCommand": task.Run.EnableExecuteCommand,
		"overrides": object{"containerOverrides": overrides(task.Run.Overrides)},
	}
	if u.Over() {
		view["stopCode"], view["stoppedReason"], view["stoppedAt"] = "EssentialContainerExited", "Essential container in task exited", seconds(u.Ended)
	}
	if reason := s.reasons[u.ID]; reason != "" {
		view["stopCode"], view["stoppedReason"] = "UserInitiated", reason
		if code := s.codes[u.ID]; code != "" {
			view["stopCode"] = code
		}
	}
	if withTags && !s.untagged[u.ID] {
		tags := []any{}
		for key, value := range u.Tags {
			tags = append(tags, object{"key": key, "value": value})
		}
		view["tags"] = tags
	}
	if len(u.IPs) > 0 {
		view["attachments"] = []any{object{"type": "ElasticNetworkInterface", "details": []any{object{"name": "privateIPv4Address", "value": u.IPs[0]}}}}
	}
	containers := []any{}
	for _, c := range u.Containers {
		shown := object{"name": c.Name, "image": c.Image, "lastStatus": map[podgroup.State]string{podgroup.Waiting: "PENDING", podgroup.Executing: "RUNNING", podgroup.Terminated: "STOPPED"}[c.Now.State], "healthStatus": "UNKNOWN"}
		if health := s.unhealthy[u.ID+"/"+c.Name]; health != "" {
			shown["healthStatus"] = health
		}
		if c.Now.State != podgroup.Waiting {
			view["startedAt"] = seconds(c.Now.Started)
		}
		if c.Now.State == podgroup.Terminated {
			shown["exitCode"] = c.Now.ExitCode
		}
		containers = append(containers, shown)
	}
	view["containers"] = containers
	return view
}

// logEvents is the request of GetLogEvents, by the names that it has in JSON.
type logEvents struct {
	LogGroupName, LogStreamName string
	StartFromHead               bool
	StartTime                   int64
	Limit                       int
	NextToken                   string
}

// maxPage is how many bytes of messages an answer has.
const maxPage = 1 << 20

// logEvents answers with the events before a token, the newest page first.
func (s *Server) logEvents(in logEvents) (any, error) {
	parts := strings.Split(in.LogStreamName, "/")
	if in.LogGroupName == "" || len(parts) != 3 || in.Limit > 10000 || in.StartTime < 0 || in.StartFromHead {
		return nil, invalid("the request is not valid: the fake reads from the end")
	}
	lines, err := s.World.Log(parts[2], parts[1], false)
	if err != nil || len(lines) == 0 {
		return nil, refuse("ResourceNotFoundException", "The specified log stream does not exist.")
	}
	limit, end := 10000, len(lines)
	if in.Limit > 0 {
		limit = in.Limit
	}
	if in.NextToken != "" {
		if end, err = strconv.Atoi(strings.TrimPrefix(in.NextToken, "b/")); err != nil {
			return nil, invalid("The specified nextToken is invalid.")
		}
	}
	events := []any{}
	begin := end
	for size := 0; begin > 0 && len(events) < limit; begin-- {
		line := lines[begin-1]
		if size += len(line.Text); size > maxPage || line.At.UnixMilli() < in.StartTime {
			break
		}
		events = append(events, object{"timestamp": line.At.UnixMilli(), "message": line.Text})
	}
	slices.Reverse(events)
	return object{"events": events, "nextForwardToken": "f/end", "nextBackwardToken": "b/" + strconv.Itoa(begin)}, nil
}
