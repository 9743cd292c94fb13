package ecitest

import (
	"encoding/base64"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

var (
	groupName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])$`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	spec      = regexp.MustCompile(`^([0-9.]+-[0-9.]+Gi|ecs\.[a-z0-9.-]+)$`)
)

// createGroup is CreateContainerGroup.
func (s *Server) createGroup(p params) (map[string]any, error) {
	if err := checkCreation(p); err != nil {
		return nil, err
	}
	spec := grouptest.Spec{
		Token: p["ClientToken"], Request: identity(p), Tags: map[string]string{}, RestartPolicy: p["RestartPolicy"],
		Deadline: time.Duration(p.Integer("ActiveDeadlineSeconds")) * time.Second, Files: filesOf(p), Data: p,
	}
	for _, tag := range p.Each("Tag") {
		spec.Tags[tag["Key"]] = tag["Value"]
	}
	for kind, list := range map[string]*[]podgroup.Container{"InitContainer": &spec.InitContainers, "Container": &spec.Containers} {
		for _, c := range p.Each(kind) {
			*list = append(*list, podgroup.Container{Name: c["Name"], Image: c["Image"]})
		}
	}
	u, err := s.World.Create(spec)
	return map[string]any{"ContainerGroupId": u.ID}, err
}

func checkCreation(p params) error {
	for _, name := range []string{"ContainerGroupName", "SecurityGroupId", "VSwitchId", "Container.1.Name", "Container.1.Image"} {
		if p[name] == "" {
			return missing(name)
		}
	}
	if !groupName.MatchString(p["ContainerGroupName"]) {
		return invalid("ContainerGroupName", "%q is not valid.", p["ContainerGroupName"])
	}
	if !slices.Contains([]string{"", "Always", "OnFailure", "Never"}, p["RestartPolicy"]) {
		return invalid("RestartPolicy", "%q is not valid.", p["RestartPolicy"])
	}
	if len(p["ClientToken"]) > 64 {
		return invalid("ClientToken", "It has more than 64 characters.")
	}
	containers := slices.Concat(p.Each("Container"), p.Each("InitContainer"))
	if len(containers) > 20 || len(p.Each("Volume")) > 20 || len(p.Each("Tag")) > 20 {
		return refuse(http.StatusBadRequest, "InvalidParameter.LengthExceeded", "There are more than 20 containers, volumes or tags.")
	}
	for _, tag := range p.Each("Tag") {
		if tag["Key"] == "" || len(tag["Key"]) > 64 || len(tag["Value"]) > 128 {
			return invalid("Tag", "The tag %q has no key, or one that is too long, or too long a value.", tag["Key"])
		}
	}
	if err := checkSize(p); err != nil {
		return err
	}
	volumes := map[string]bool{}
	for _, v := range p.Each("Volume") {
		if err := checkVolume(v); err != nil {
			return err
		}
		volumes[v["Name"]] = true
	}
	for _, c := range containers {
		for _, e := range c.Each("EnvironmentVar") {
			if !variable.MatchString(e["Key"]) || utf8.RuneCountInString(e["Value"]) > 256 {
				return invalid("EnvironmentVar", "The name of the variable %q is not valid, or its value %q has more than 256 characters.", e["Key"], e["Value"])
			}
		}
		for _, m := range c.Each("VolumeMount") {
			if !volumes[m["Name"]] || m["MountPath"] == "" {
				return invalid("VolumeMount", "The volume %q that container %q mounts does not exist.", m["Name"], c["Name"])
			}
		}
	}
	for i := range p.Each("SecurityContext.Sysctl") {
		if name := p.Each("SecurityContext.Sysctl")[i]["Name"]; name != "net.ipv4.ping_group_range" && name != "net.ipv4.ip_unprivileged_port_start" {
			return invalid("SecurityContext.Sysctl", "%q is not safe.", name)
		}
	}
	return nil
}

// checkSize refuses sizes that there are not. What is between those that are sold is rounded
// up by the service.
func checkSize(p params) error {
	specs := strings.Split(p["InstanceType"], ",")
	if p["InstanceType"] != "" {
		if p["Cpu"] != "" || p["Memory"] != "" || len(specs) > 5 || slices.ContainsFunc(specs, func(one string) bool { return !spec.MatchString(one) }) {
			return invalid("InstanceType", "%q is not valid.", p["InstanceType"])
		}
		return nil
	}
	var cpu, memory float64
	for _, c := range p.Each("Container") {
		cpu, memory = cpu+c.Float("Cpu"), memory+c.Float("Memory")
	}
	switch {
	case p.Float("Cpu") < 0.25 || p.Float("Memory") < 0.5 || p.Float("Cpu") > 64 || p.Float("Memory") > 512:
		return invalid("CPU.Memory", "The specified cpu %q and memory %q are not allowed.", p["Cpu"], p["Memory"])
	case cpu > p.Float("Cpu")+0.001 || memory > p.Float("Memory")+0.001:
		return invalid("Container", "The containers have more than the container group.")
	}
	return nil
}

func checkVolume(v params) error {
	required := map[string][]string{
		"EmptyDirVolume": {}, "NFSVolume": {"NFSVolume.Server", "NFSVolume.Path"}, "FlexVolume": {"FlexVolume.Driver"},
		"DiskVolume": {"DiskVolume.DiskId"}, "ConfigFileVolume": {},
	}
	names, ok := required[v["Type"]]
	if !ok {
		return invalid("VolumeType", "The volume type %q is not valid.", v["Type"])
	}
	for _, name := range append(names, "Name") {
		if v[name] == "" {
			return missing("Volume." + name)
		}
	}
	size := 0
	for i, f := range v.Each("ConfigFileVolume.ConfigFileToPath") {
		if data, err := base64.StdEncoding.DecodeString(f["Content"]); err != nil || f["Path"] == "" || len(data) > 32<<10 {
			return invalid("ConfigFileVolume", "The content of %q is no base64, or has more than 32 KB.", f["Path"])
		} else if size += len(data); size > 60<<10 || i >= 90 {
			return invalid("ConfigFileVolume", "The volume has more than 60 KB, or 90 files.")
		}
	}
	return nil
}

// filesOf returns the files of the volumes in the parameters of a call.
func filesOf(p params) map[string]volume.Files {
	all := map[string]volume.Files{}
	for _, v := range p.Each("Volume") {
		if v["Type"] != "ConfigFileVolume" {
			continue
		}
		all[v["Name"]] = volume.Files{}
		for _, f := range v.Each("ConfigFileVolume.ConfigFileToPath") {
			data, _ := base64.StdEncoding.DecodeString(f["Content"]) // checkVolume has seen to it
			all[v["Name"]][f["Path"]] = volume.File{Data: data}
		}
	}
	return all
}

// deleteGroup is DeleteContainerGroup.
func (s *Server) deleteGroup(p params) (map[string]any, error) {
	u, err := s.find(p)
	switch {
	case err != nil:
	case p["Force"] == "true":
		err = s.World.Kill(u.ID)
	default:
		err = s.World.Delete(u.ID)
	}
	return nil, err
}

// updateGroup is UpdateContainerGroup, for images, credentials and volumes with files.
func (s *Server) updateGroup(p params) (map[string]any, error) {
	u, err := s.find(p)
	if err != nil {
		return nil, err
	}
	was := maps.Clone(u.Spec.Data.(params))
	keeps := p["UpdateType"] == "IncrementalUpdate"
	for _, v := range p.Each("Volume") {
		if err := checkVolume(v); err != nil {
			return nil, err
		}
	}
	images := map[string]string{}
	for kind, list := range map[string][]params{"Container": p.Each("Container"), "InitContainer": p.Each("InitContainer")} {
		for _, c := range list {
			if u.Container(c["Name"]) == nil {
				return nil, invalid("Container", "There is no container %q.", c["Name"])
			}
			images[c["Name"]] = c["Image"]
			update(was, kind, c, keeps)
		}
	}
	for name, value := range p {
		if strings.HasPrefix(name, "ImageRegistryCredential.") {
			was[name] = value
		}
	}
	if err := s.World.Update(u.ID, images, filesOf(p)); err != nil {
		return nil, err
	}
	pod := u.Tags[podgroup.TagPodName]
	err = s.Change(pod, func(u *grouptest.Unit) {
		u.Spec.Data = was
		if len(p.Each("Volume")) > 0 && !keeps {
			u.Files = filesOf(p)
		}
	})
	if u.Spec.RestartPolicy == "Never" {
		for i := range u.Containers {
			err = s.Exit(pod, u.Containers[i].Name, 137)
		}
	}
	return nil, err
}

// update changes the parameters of a container, or replaces all of them.
func update(p params, kind string, c params, keeps bool) {
	for i, known := range p.Each(kind) {
		if known["Name"] != c["Name"] {
			continue
		}
		prefix := kind + "." + itoa(i+1) + "."
		for name := range known {
			if !keeps {
				delete(p, prefix+name)
			}
		}
		for name, value := range c {
			p[prefix+name] = value
		}
	}
}
