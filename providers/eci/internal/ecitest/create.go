package ecitest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
)

var groupName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])$`)

// createGroup is CreateContainerGroup.
func (s *Server) createGroup(p params) (map[string]any, *apiError) {
	if refused := checkCreation(p); refused != nil {
		return nil, refused
	}
	request := identity(p)
	if token := p["ClientToken"]; token != "" {
		if known, ok := s.tokens[token]; ok {
			if known.request != request {
				return nil, refuse(http.StatusBadRequest, "IdempotentParameterMismatch", "The request uses the same client token as a previous, but non-identical request.")
			}
			return map[string]any{"ContainerGroupId": known.id}, nil
		}
	}
	h := s.newGroupState(p)
	s.groups = append(s.groups, h)
	if token := p["ClientToken"]; token != "" {
		s.tokens[token] = creation{request, h.group.ContainerGroupId}
	}
	return map[string]any{"ContainerGroupId": h.group.ContainerGroupId}, nil
}

// identity returns the parameters that must be the same in two calls with the same
// client token.
func identity(p params) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if !strings.HasPrefix(name, "Signature") && name != "Timestamp" {
			fmt.Fprintf(&b, "%s=%q\n", name, p[name])
		}
	}
	return b.String()
}

// sizes are the vCPUs and memory that are sold, as far as tests need them.
var sizes = map[float64][]float64{0.25: {0.5, 1}, 0.5: {1, 2}, 1: {2, 4, 8}, 2: {2, 4, 8, 16}, 4: {4, 8, 16, 32}, 8: {8, 16, 32, 64}}

func checkCreation(p params) *apiError {
	for _, name := range []string{"ContainerGroupName", "SecurityGroupId", "VSwitchId", "Container.1.Name", "Container.1.Image"} {
		if p[name] == "" {
			return missing(name)
		}
	}
	invalid := func(name string) *apiError {
		return refuse(http.StatusBadRequest, "InvalidParameter."+name, "The specified parameter %s with value %q is not valid.", name, p[name])
	}
	if !groupName.MatchString(p["ContainerGroupName"]) {
		return invalid("ContainerGroupName")
	}
	if !slices.Contains([]string{"", "Always", "OnFailure", "Never"}, p["RestartPolicy"]) {
		return invalid("RestartPolicy")
	}
	if p["InstanceType"] == "" && !slices.Contains(sizes[p.float("Cpu")], p.float("Memory")) {
		return refuse(http.StatusBadRequest, "InvalidParameter.CPU.Memory", "The specified cpu %q and memory %q are not allowed.", p["Cpu"], p["Memory"])
	}
	for name, value := range p {
		if strings.HasPrefix(value, "<") && strings.HasSuffix(value, " Value>") {
			return invalid(name) // what reflection returns for a value that cannot be encoded
		}
	}
	volumes := map[string]bool{}
	for _, v := range p.each("Volume") {
		if refused := checkVolume(v); refused != nil {
			return refused
		}
		volumes[v["Name"]] = true
	}
	var cpu, memory float64
	for _, c := range slices.Concat(p.each("Container"), p.each("InitContainer")) {
		for _, m := range c.each("VolumeMount") {
			if !volumes[m["Name"]] || m["MountPath"] == "" {
				return refuse(http.StatusBadRequest, "InvalidParameter.VolumeMount", "The volume %q that container %q mounts does not exist.", m["Name"], c["Name"])
			}
		}
	}
	for _, c := range p.each("Container") {
		cpu, memory = cpu+c.float("Cpu"), memory+c.float("Memory")
	}
	if p["InstanceType"] == "" && (cpu > p.float("Cpu")+0.001 || memory > p.float("Memory")+0.001) {
		return refuse(http.StatusBadRequest, "InvalidParameter.Container", "The containers have more than the container group.")
	}
	return nil
}

func checkVolume(v params) *apiError {
	switch v["Type"] {
	case "EmptyDirVolume":
	case "NFSVolume":
		if v["NFSVolume.Server"] == "" || v["NFSVolume.Path"] == "" {
			return missing("Volume.NFSVolume")
		}
	case "FlexVolume":
		if v["FlexVolume.Driver"] == "" {
			return missing("Volume.FlexVolume.Driver")
		}
	case "ConfigFileVolume":
		for _, f := range v.each("ConfigFileVolume.ConfigFileToPath") {
			if _, err := base64.StdEncoding.DecodeString(f["Content"]); err != nil || f["Path"] == "" {
				return refuse(http.StatusBadRequest, "InvalidParameter.ConfigFileVolume", "The content of %q is no base64.", f["Path"])
			}
		}
	default:
		return refuse(http.StatusBadRequest, "InvalidParameter.VolumeType", "The volume type %q is not valid.", v["Type"])
	}
	return nil
}

// newGroupState returns the group for a creation.
func (s *Server) newGroupState(p params) *groupState {
	s.next++
	h := &groupState{number: s.next, params: p, created: s.now(), logs: map[string][]line{}, containers: map[string]*container{}}
	h.group = eci.DescribeContainerGroupsContainerGroup0{
		ContainerGroupId: fmt.Sprintf("eci-%06d", s.next), ContainerGroupName: p["ContainerGroupName"], RegionId: Region,
		Cpu: float32(p.float("Cpu")), Memory: float32(p.float("Memory")), InstanceType: p["InstanceType"], RamRoleName: p["RamRoleName"],
		SecurityGroupId: p["SecurityGroupId"], VSwitchId: p["VSwitchId"], RestartPolicy: p["RestartPolicy"],
		Status: "Scheduling", CreationTime: stamp(h.created), Volumes: volumesOf(p),
	}
	if h.group.RestartPolicy == "" {
		h.group.RestartPolicy = "Always"
	}
	for _, tag := range p.each("Tag") {
		h.group.Tags = append(h.group.Tags, eci.DescribeContainerGroupsLabel1{Key: tag["Key"], Value: tag["Value"]})
	}
	for _, c := range p.each("InitContainer") {
		h.group.InitContainers = append(h.group.InitContainers, newContainer(c))
	}
	for _, c := range p.each("Container") {
		h.group.Containers = append(h.group.Containers, newContainer(c))
		h.containers[c["Name"]] = &container{}
	}
	return h
}

func newContainer(p params) eci.DescribeContainerGroupsContainer1 {
	return eci.DescribeContainerGroupsContainer1{
		Name: p["Name"], Image: p["Image"], Cpu: float32(p.float("Cpu")), Memory: float32(p.float("Memory")), Gpu: p.integer("Gpu"),
		Commands: p.list("Command"), Args: p.list("Arg"), WorkingDir: p["WorkingDir"], ImagePullPolicy: p["ImagePullPolicy"],
		CurrentState: eci.DescribeContainerGroupsCurrentState2{State: "Waiting", Reason: "ContainerCreating"},
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
