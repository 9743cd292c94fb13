package ecstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// maxFamilies is how many families a page has.
const maxFamilies = 100

const definitionARN = "task-definition/"

// Definitions returns the families with an active task definition.
func (s *Server) Definitions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active("")
}

// Leave registers a definition as a process has left it that ended.
func (s *Server) Leave(family string) error {
	_, err := s.register(ecs.RegisterTaskDefinitionInput{
		Family: &family, Cpu: new("256"), Memory: new("512"), NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate},
		ContainerDefinitions: []types.ContainerDefinition{{Name: new("main"), Image: new("nginx"), Essential: new(true)}},
	})
	return err
}

// Deregister deregisters all definitions, and deletes their secrets, as others may.
func (s *Server) Deregister() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.families {
		for _, r := range list {
			r.status = "INACTIVE"
		}
	}
	clear(s.secrets)
}

// active returns the families with a prefix that have an active definition. The caller holds
// s.mu.
func (s *Server) active(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		if strings.HasPrefix(name, prefix) && slices.ContainsFunc(s.families[name], isActive) {
			names = append(names, name)
		}
	}
	return names
}

// inactive returns the families with a prefix that have definitions, and no active one. The caller
// holds s.mu.
func (s *Server) inactive(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		if strings.HasPrefix(name, prefix) && !slices.ContainsFunc(s.families[name], isActive) && slices.ContainsFunc(s.families[name], isInactive) {
			names = append(names, name)
		}
	}
	return names
}

// Inactive returns the families whose definitions were deregistered, and not deleted.
func (s *Server) Inactive() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inactive("")
}

func isInactive(r *revision) bool { return r.status == "INACTIVE" }

// listDefinitions lists the inactive definitions of a family.
func (s *Server) listDefinitions(in ecs.ListTaskDefinitionsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Status != types.TaskDefinitionStatusInactive {
		return nil, invalid("the fake lists inactive definitions only")
	}
	names := []string{}
	for _, r := range s.families[*in.FamilyPrefix] {
		if isInactive(r) && len(names) < int(*in.MaxResults) {
			names = append(names, arn(definitionARN+r.name))
		}
	}
	return object{"taskDefinitionArns": names}, nil
}

func isActive(r *revision) bool { return r.status == "ACTIVE" }

var familyRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)

// memory is the least and most memory that Fargate sells with CPU units, and its step, in MiB.
var memory = map[string][3]int{
	"256": {512, 2048, 512}, "512": {1024, 4096, 1024}, "1024": {2048, 8192, 1024}, "2048": {4096, 16384, 1024},
	"4096": {8192, 30720, 1024}, "8192": {16384, 61440, 4096}, "16384": {32768, 122880, 8192},
}

func (s *Server) register(in ecs.RegisterTaskDefinitionInput) (any, error) {
	text, err := json.Marshal(in)
	if err != nil || len(text) > 64<<10 {
		return nil, client("Actual length: '65536'. Max allowed length is '65536' bytes.")
	}
	mib, err := strconv.Atoi(*in.Memory)
	sold, ok := memory[*in.Cpu]
	switch {
	case !familyRule.MatchString(*in.Family):
		return nil, client("Family contains invalid characters.")
	case in.NetworkMode != types.NetworkModeAwsvpc, !slices.Contains(in.RequiresCompatibilities, types.CompatibilityFargate):
		return nil, client("Fargate only supports network mode 'awsvpc'.")
	case err != nil || !ok || mib < sold[0] || mib > sold[1] || mib%sold[2] != 0:
		return nil, client("No Fargate configuration exists for given values.")
	case in.EphemeralStorage != nil && (in.EphemeralStorage.SizeInGiB < 21 || in.EphemeralStorage.SizeInGiB > 200):
		return nil, client("EphemeralStorage size should be between 21 and 200.")
	case len(in.Tags) > 50:
		return nil, invalid("Too many tags.")
	}
	if err := checkContainers(&in, mib); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &revision{in, fmt.Sprintf("%s:%d", *in.Family, len(s.families[*in.Family])+1), "ACTIVE"}
	s.families[*in.Family] = append(s.families[*in.Family], r)
	return r.view(), nil
}

func (r *revision) view() object {
	return object{"taskDefinition": object{
		"taskDefinitionArn": arn(definitionARN + r.name), "family": r.Family, "status": r.status, "containerDefinitions": []any{},
	}}
}

func checkContainers(in *ecs.RegisterTaskDefinitionInput, taskMemory int) error {
	names, essential, used, cpu := map[string]bool{}, false, 0, 0
	if len(in.ContainerDefinitions) > 10 {
		return client("A task definition can have at most 10 containers.")
	}
	for i := range in.ContainerDefinitions {
		c := &in.ContainerDefinitions[i]
		essential = essential || c.Essential == nil || *c.Essential
		for _, d := range c.DependsOn {
			j := slices.IndexFunc(in.ContainerDefinitions, func(other types.ContainerDefinition) bool { return *other.Name == *d.ContainerName })
			switch {
			case j < 0 || !names[*d.ContainerName]:
				return client("container " + *c.Name + " depends on one that does not exist")
			case d.Condition == types.ContainerConditionSuccess && *in.ContainerDefinitions[j].Essential:
				return client("condition SUCCESS cannot be set on an essential container")
			case d.Condition == types.ContainerConditionHealthy && in.ContainerDefinitions[j].HealthCheck == nil:
				return client("condition HEALTHY needs a health check")
			}
		}
		cpu += int(c.Cpu)
		if c.Memory != nil {
			used += int(*c.Memory)
		}
		if names[*c.Name] || !familyRule.MatchString(*c.Name) {
			return client("Container name is not valid or not unique.")
		}
		names[*c.Name] = true
		if err := checkContainer(in, c); err != nil {
			return err
		}
	}
	if units, err := strconv.Atoi(*in.Cpu); err != nil || cpu > units {
		return client("Total cpu of the containers must be less than or equal to that of the task.")
	}
	if !essential || used > taskMemory {
		return client("Task definition needs an essential container, and memory for all.")
	}
	return nil
}

func checkContainer(in *ecs.RegisterTaskDefinitionInput, c *types.ContainerDefinition) error {
	between := func(value *int32, low, high int32) bool { return value == nil || *value >= low && *value <= high }
	for _, m := range c.MountPoints {
		if !slices.ContainsFunc(in.Volumes, func(v types.Volume) bool { return *v.Name == *m.SourceVolume }) {
			return client("Unknown volume '" + *m.SourceVolume + "'.")
		}
	}
	if h := c.HealthCheck; h != nil && (len(h.Command) < 2 || h.Command[0] != "CMD" || !between(h.Interval, 5, 300) || !between(h.Timeout, 2, 60) || !between(h.Retries, 1, 10) || !between(h.StartPeriod, 0, 300)) {
		return client("Health check is not valid.")
	}
	if p := c.LinuxParameters; p != nil && p.Capabilities != nil && !slices.Equal(p.Capabilities.Add, slices.Repeat([]string{"SYS_PTRACE"}, len(p.Capabilities.Add))) {
		return client("Fargate compatible task definitions do not support adding capabilities but SYS_PTRACE.")
	}
	needsRole := c.LogConfiguration != nil || len(c.Secrets) > 0 || c.RepositoryCredentials != nil
	switch {
	case c.Image == nil || *c.Image == "":
		return client("Container.image should not be null or empty.")
	case !between(c.StopTimeout, 2, 120):
		return client("Container stopTimeout is not valid.")
	case c.RestartPolicy != nil && !between(c.RestartPolicy.RestartAttemptPeriod, 60, 1800):
		return client("restartAttemptPeriod is not valid.")
	case c.Memory != nil && *c.Memory < 6:
		return client("Invalid setting for container. The minimum memory is 6 MiB.")
	case needsRole && in.ExecutionRoleArn == nil:
		return client("Fargate requires task definition to have execution role ARN to support log driver awslogs.")
	}
	return nil
}

// find returns a definition by its ARN or name, or the newest active one of a family. The
// caller holds s.mu.
func (s *Server) find(name string) *revision {
	family, number, exact := strings.Cut(strings.TrimPrefix(name, arn(definitionARN)), ":")
	for _, r := range slices.Backward(s.families[family]) {
		if exact && r.name == family+":"+number || !exact && isActive(r) {
			return r
		}
	}
	return nil
}

func (s *Server) describeDefinition(in ecs.DescribeTaskDefinitionInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(*in.TaskDefinition)
	if r == nil {
		return nil, client("Unable to describe task definition.")
	}
	return r.view(), nil
}

func (s *Server) deregister(in ecs.DeregisterTaskDefinitionInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(strings.TrimPrefix(*in.TaskDefinition, arn("")), ":") {
		return nil, client("A revision has to be given.")
	}
	r := s.find(*in.TaskDefinition)
	if r == nil || !isActive(r) {
		return nil, client("The specified task definition does not exist.")
	}
	r.status = "INACTIVE"
	return r.view(), nil
}

func (s *Server) deleteDefinitions(in ecs.DeleteTaskDefinitionsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(in.TaskDefinitions) > 10 {
		return nil, invalid("At most 10 task definitions can be deleted.")
	}
	failures := []any{}
	for _, name := range in.TaskDefinitions {
		if r := s.find(name); r == nil || isActive(r) {
			failures = append(failures, object{"arn": name, "reason": "TASK_DEFINITION_NOT_INACTIVE"})
		} else {
			r.status = "DELETE_IN_PROGRESS"
		}
	}
	return object{"taskDefinitions": []any{}, "failures": failures}, nil
}

func (s *Server) listFamilies(in ecs.ListTaskDefinitionFamiliesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.active(*in.FamilyPrefix)
	if in.Status == types.TaskDefinitionFamilyStatusInactive {
		names = s.inactive(*in.FamilyPrefix)
	}
	if in.NextToken != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return name <= *in.NextToken })
	}
	answer := object{"families": names[:min(len(names), maxFamilies)]}
	if len(names) > maxFamilies {
		answer["nextToken"] = names[maxFamilies-1]
	}
	return answer, nil
}
