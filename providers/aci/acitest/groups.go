package acitest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Group is a group as it was created.
type Group struct {
	Name string
	aci.ContainerGroup

	once   sync.Once
	public aci.ContainerGroup
}

// shown returns a copy without secrets, which is not to be changed.
func (g *Group) shown() *aci.ContainerGroup {
	g.once.Do(func() {
		text, _ := json.Marshal(g.ContainerGroup) // it was decoded
		_ = json.Unmarshal(text, &g.public)
		for _, c := range partsOf(g.public.Properties) {
			for _, v := range c.variables {
				v.SecureValue = nil
			}
		}
		for _, v := range g.public.Properties.Volumes {
			if v.Secret != nil {
				v.Secret = map[string]*string{}
			}
			if v.AzureFile != nil {
				v.AzureFile.StorageAccountKey = nil
			}
		}
		for _, c := range g.public.Properties.ImageRegistryCredentials {
			c.Password = nil
		}
	})
	return &g.public
}

// The rules of names.
var (
	nameRule     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	volumeRule   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{3,61}[a-z0-9]$`)
	variableRule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	labelRule    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{3,61}[A-Za-z0-9]$`)
	fileRule     = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

func isName(name *string) bool {
	return name != nil && nameRule.MatchString(*name) && !strings.Contains(*name, "--")
}

// parts are what containers and init containers have in common.
type parts struct {
	name, image *string
	variables   []*aci.EnvironmentVariable
	mounts      []*aci.VolumeMount
}

func partsOf(p *aci.ContainerGroupPropertiesProperties) (all []parts) {
	for _, c := range p.InitContainers {
		all = append(all, parts{c.Name, c.Properties.Image, c.Properties.EnvironmentVariables, c.Properties.VolumeMounts})
	}
	for _, c := range p.Containers {
		all = append(all, parts{c.Name, c.Properties.Image, c.Properties.EnvironmentVariables, c.Properties.VolumeMounts})
	}
	return all
}

// wrong returns why a group is refused; nil if it is not.
func wrong(name string, g *aci.ContainerGroup) error {
	bad := func(code, format string, args ...any) error {
		return refuse(http.StatusBadRequest, code, format, args...)
	}
	p := g.Properties
	switch {
	case !isName(&name):
		return bad("InvalidContainerGroupName", "The container group name '%s' is invalid.", name)
	case p == nil || len(p.Containers) == 0 || p.OSType == nil || g.Location == nil:
		return bad("InvalidRequestContent", "containers, osType or location is missing.")
	case *g.Location != Region:
		return bad("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type 'Microsoft.ContainerInstance/containerGroups'.", *g.Location)
	case len(p.Containers)+len(p.InitContainers) > 60:
		return bad("ContainerLimitExceeded", "There are more than 60 containers.")
	case *p.OSType == aci.OperatingSystemTypesWindows && len(p.Volumes)+len(p.Containers)+len(p.InitContainers) > 1:
		return bad("InvalidRequestContent", "Groups of Windows have one container, and no volumes.")
	case len(p.Volumes) > 20:
		return bad("VolumeLimitExceeded", "There are more than 20 volumes.")
	case len(g.Tags) > 50:
		return bad("InvalidTags", "There are more than 50 tags.")
	case p.SubnetIDs != nil && p.IPAddress != nil && *p.IPAddress.Type == aci.ContainerGroupIPAddressTypePublic:
		return bad("InvalidIPAddressType", "A group in a virtual network has no public IP address.")
	case p.DNSConfig != nil && (p.SubnetIDs == nil || len(p.DNSConfig.NameServers) == 0):
		return bad("DnsConfigNotSupported", "dnsConfig needs a virtual network and name servers.")
	case p.Priority != nil && *p.Priority == aci.ContainerGroupPrioritySpot && (p.IPAddress != nil || p.SubnetIDs != nil):
		return bad("SpotNotSupportedWithNetwork", "Spot container groups have neither a public IP address nor a virtual network.")
	}
	for key, value := range g.Tags {
		if len(key) > 512 || strings.ContainsAny(key, `<>%&\?/`) || value == nil || len(*value) > 256 {
			return bad("InvalidTagNameCharacters", "The tag '%s' is invalid.", key)
		}
	}
	volumes, names := map[string]bool{}, map[string]bool{}
	for _, v := range p.Volumes {
		kinds := 0
		for _, is := range []bool{v.AzureFile != nil, v.EmptyDir != nil, v.GitRepo != nil, v.Secret != nil} {
			if is {
				kinds++
			}
		}
		if v.Name == nil || !volumeRule.MatchString(*v.Name) || strings.Contains(*v.Name, "--") || volumes[*v.Name] || kinds != 1 {
			return bad("InvalidVolume", "A volume has no valid name, or not one source.")
		}
		volumes[*v.Name] = true
		for file, data := range v.Secret {
			if _, err := base64.StdEncoding.DecodeString(*data); err != nil || !fileRule.MatchString(file) {
				return bad("InvalidSecretVolume", "The file '%s' of volume '%s' is invalid.", file, *v.Name)
			}
		}
		if f := v.AzureFile; f != nil && (f.ShareName == nil || f.StorageAccountName == nil || f.StorageAccountKey == nil) {
			return bad("InvalidAzureFileVolume", "The share, account or key of volume '%s' is missing.", *v.Name)
		}
	}
	for _, c := range partsOf(p) {
		switch {
		case !isName(c.name) || names[*c.name]:
			return bad("InvalidContainerName", "The container name is invalid, or there are two.")
		case c.image == nil || *c.image == "":
			return bad("InvalidImageName", "The image of container '%s' is missing.", *c.name)
		case strings.Contains(*c.image, "inaccessible"):
			return bad("InaccessibleImage", "The image '%s' in container group '%s' is not accessible. Please check the image and registry credential.", *c.image, name)
		}
		names[*c.name] = true
		for _, v := range c.variables {
			if v.Name == nil || !variableRule.MatchString(*v.Name) || (v.Value == nil) == (v.SecureValue == nil) || v.SecureValue != nil && *v.SecureValue == "" {
				return bad("InvalidEnvironmentVariable", "A variable of container '%s' is invalid.", *c.name)
			}
		}
		for _, m := range c.mounts {
			if m.Name == nil || !volumes[*m.Name] || m.MountPath == nil || strings.Contains(*m.MountPath, ":") {
				return bad("InvalidVolumeMount", "A mount of container '%s' is invalid.", *c.name)
			}
		}
	}
	return wrongContainers(p)
}

// wrongContainers returns why containers are refused.
func wrongContainers(p *aci.ContainerGroupPropertiesProperties) error {
	bad := func(code, format string, args ...any) error {
		return refuse(http.StatusBadRequest, code, format, args...)
	}
	isStep := func(n *float64, step float64) bool {
		return n != nil && *n > 0 && math.Abs(*n/step-math.Round(*n/step)) < 1e-6
	}
	var cpu, memory float64
	for _, c := range p.Containers {
		if r := c.Properties.Resources; r != nil && r.Requests != nil && r.Requests.CPU != nil && r.Requests.MemoryInGB != nil {
			cpu, memory = cpu+*r.Requests.CPU, memory+*r.Requests.MemoryInGB
		}
	}
	var gpuTypes []string
	ports := map[string]bool{}
	for _, c := range p.Containers {
		r := c.Properties.Resources
		if r == nil || r.Requests == nil || !isStep(r.Requests.CPU, 0.01) || !isStep(r.Requests.MemoryInGB, 0.1) {
			return bad("ResourceRequestsNotSpecified", "The requests of container '%s' are missing, or not in steps of 0.01 CPUs and 0.1 GB.", *c.Name)
		}
		for _, one := range []struct {
			what           string
			limit          func(*aci.ResourceLimits) *float64
			request, total float64
		}{
			{"Cpu", func(l *aci.ResourceLimits) *float64 { return l.CPU }, *r.Requests.CPU, cpu},
			{"MemoryInGB", func(l *aci.ResourceLimits) *float64 { return l.MemoryInGB }, *r.Requests.MemoryInGB, memory},
		} {
			switch {
			case r.Limits == nil || one.limit(r.Limits) == nil:
			case *one.limit(r.Limits) < one.request:
				return bad("ResourceLimitsLessThanRequests", "The '%s' limit value of container '%s' must be greater than or equal to the request value.", one.what, *c.Name)
			case *one.limit(r.Limits) > one.total+1e-6:
				return bad("ContainerLimitGreaterThanContainerGroupTotalRequest", "The '%s' limit '%g' in container '%s' is greater than the total request '%g' of container group.", one.what, *one.limit(r.Limits), *c.Name, one.total)
			}
		}
		if gpu := r.Requests.Gpu; gpu != nil && (p.SubnetIDs != nil || !slices.Contains([]int32{1, 2, 4}, *gpu.Count)) {
			return bad("GpuNotSupported", "GPUs are 1, 2 or 4, and not in a virtual network.")
		} else if gpu != nil {
			gpuTypes = append(gpuTypes, string(*gpu.SKU))
		}
		for _, port := range c.Properties.Ports {
			ports[fmt.Sprint(*port.Port, *port.Protocol)] = true
		}
		for _, probe := range []*aci.ContainerProbe{c.Properties.LivenessProbe, c.Properties.ReadinessProbe} {
			if probe != nil && ((probe.Exec == nil) == (probe.HTTPGet == nil) || probe.HTTPGet != nil && *probe.HTTPGet.Port <= 0) {
				return bad("InvalidProbe", "A probe of container '%s' has neither a command nor a request, or both.", *c.Name)
			}
		}
	}
	if a := p.IPAddress; a != nil {
		if len(a.Ports) == 0 || len(a.Ports) > 5 {
			return bad("InvalidPorts", "An IP address has one to five ports.")
		}
		if a.DNSNameLabel != nil && !labelRule.MatchString(*a.DNSNameLabel) {
			return bad("InvalidDnsNameLabel", "The DNS name label '%s' is invalid.", *a.DNSNameLabel)
		}
		for _, port := range a.Ports {
			if !ports[fmt.Sprint(*port.Port, *port.Protocol)] {
				return bad("InvalidPorts", "Port %d is of no container, or there twice.", *port.Port)
			}
			delete(ports, fmt.Sprint(*port.Port, *port.Protocol))
		}
	}
	if cpu > maxCPU || slices.Contains(gpuTypes, "K80") {
		return refuse(http.StatusConflict, "ServiceUnavailable", "The requested resource is not available in the location '%s' at this moment. Please retry with a different resource request or in another location. Resource requested: '%g' CPU.", Region, cpu)
	}
	return nil
}

// maxCPU is that of the largest group of the region, which publishes less.
const maxCPU, publishedCPU, publishedGB = 6, 4, 16

func (s *Server) create(in, name string, g *aci.ContainerGroup) (int, any, error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	if in != ResourceGroup {
		return 0, nil, refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", in)
	}
	if err := wrong(name, g); err != nil {
		return 0, nil, err
	}
	if u, err := s.find(in, name); err == nil {
		if u.Phase == podgroup.Pending {
			return 0, nil, refuse(http.StatusConflict, "ContainerGroupTransitioning", "The container group '%s' is still transitioning, please retry later.", name)
		}
		return 0, nil, refuse(http.StatusConflict, "Conflict", "The fake updates no groups: containers would be started again.")
	}
	if n := len(s.World.Units(nil)); n >= s.MaxGroups {
		return 0, nil, refuse(http.StatusConflict, "ContainerGroupQuotaReached",
			"Resource type 'Microsoft.ContainerInstance/containerGroups' container group quota 'ContainerGroups' exceeded in region '%s'. Limit: '%d', Usage: '%d' Requested: '1'.", Region, s.MaxGroups, n)
	}
	tags := map[string]string{}
	for key, value := range g.Tags {
		tags[key] = *value
	}
	spec := grouptest.Spec{Tags: tags, RestartPolicy: "Always", Data: &Group{Name: name, ContainerGroup: *g}}
	if policy := g.Properties.RestartPolicy; policy != nil {
		spec.RestartPolicy = string(*policy)
	}
	for i, c := range partsOf(g.Properties) {
		one := podgroup.Container{Name: *c.name, Image: *c.image}
		if i < len(g.Properties.InitContainers) {
			spec.InitContainers = append(spec.InitContainers, one)
		} else {
			spec.Containers = append(spec.Containers, one)
		}
	}
	u, err := s.World.Create(spec)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.view(&u, name, false), nil
}

// nameOf returns the name of the group of a unit. A second unit of a creation, which tests
// make, has another one.
func nameOf(u *grouptest.Unit, seen map[string]bool) string {
	name := u.Spec.Data.(*Group).Name
	if seen[name] {
		name += "-2"
	}
	seen[name] = true
	return name
}

// find returns the unit of a group.
func (s *Server) find(in, name string) (grouptest.Unit, error) {
	if in != ResourceGroup {
		return grouptest.Unit{}, refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", in)
	}
	base := strings.TrimSuffix(name, "-2")
	seen := map[string]bool{}
	for _, u := range s.World.Units(func(u *grouptest.Unit) bool { g := u.Spec.Data.(*Group); return g.Name == base || g.Name == name }) {
		if nameOf(&u, seen) == name {
			return u, nil
		}
	}
	return grouptest.Unit{}, refuse(http.StatusNotFound, "ResourceNotFound", "The Resource 'Microsoft.ContainerInstance/containerGroups/%s' under resource group '%s' was not found.", name, in)
}

func (s *Server) get(in, name string) (int, any, error) {
	if name == s.Unreadable {
		return 0, nil, refuse(http.StatusInternalServerError, "InternalServerError", "The server encountered an internal error.")
	}
	u, err := s.find(in, name)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.view(&u, name, true), nil
}

// delete answers with the group, or with nothing if there is none.
func (s *Server) delete(in, name string) (int, any, error) {
	u, err := s.find(in, name)
	if err != nil && in == ResourceGroup {
		return http.StatusNoContent, nil, nil
	}
	if err == nil {
		err = s.World.Delete(u.ID)
	}
	return http.StatusOK, s.view(&u, name, true), err
}

// Move has the machine of a pod's group fail, or be taken away: the group gets a provisioning
// state, and its containers wait, or run again at once; nil leaves them as they are.
func (s *Server) Move(pod, state string, run *podgroup.Run) error {
	s.mu.Lock()
	s.moved[pod] = state
	s.mu.Unlock()
	return s.World.Change(pod, func(u *grouptest.Unit) {
		if run == nil {
			return
		}
		if run.State == podgroup.Waiting {
			u.Phase = podgroup.Pending
		}
		for i := range u.Containers {
			u.Containers[i].Now = *run
		}
	})
}

// Start starts the group of a pod that was stopped.
func (s *Server) Start(pod string) error {
	u, err := s.World.OfPod(pod)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.stopped, u.ID)
	s.mu.Unlock()
	now := s.World.Now()
	return s.World.Change(pod, func(u *grouptest.Unit) {
		u.Phase, u.Ended = podgroup.Running, time.Time{}
		for i := range u.Containers {
			u.Containers[i].Now = podgroup.Run{State: podgroup.Executing, Started: now}
		}
	})
}

// stop ends the containers of a group, and keeps it.
func (s *Server) stop(in, name string) (int, any, error) {
	u, err := s.find(in, name)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	s.stopped[u.ID] = true
	delete(s.moved, u.Tags[podgroup.TagPodName])
	s.mu.Unlock()
	now := s.World.Now()
	return http.StatusNoContent, nil, s.World.Change(u.Tags[podgroup.TagPodName], func(u *grouptest.Unit) {
		u.Phase, u.Ended = podgroup.Failed, now
		for i := range u.Containers {
			if c := &u.Containers[i]; c.Now.State == podgroup.Executing {
				c.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: 137, Reason: "Error", Started: c.Now.Started, Finished: now}
			}
		}
	})
}

// list has the groups without their states, in pages with tokens.
func (s *Server) list(r *http.Request) (int, any, error) {
	if !strings.HasPrefix(r.URL.Path, "/subscriptions/"+Subscription+"/resourceGroups/"+ResourceGroup+"/providers/Microsoft.ContainerInstance/containerGroups") {
		return 0, nil, refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group could not be found.")
	}
	all := s.World.Units(func(*grouptest.Unit) bool { return !s.Stale })
	seen, names := map[string]bool{}, map[string]string{}
	for i := range all {
		names[all[i].ID] = nameOf(&all[i], seen)
	}
	token := r.URL.Query().Get("$skiptoken")
	units, next, err := s.World.Page(all, token, s.PageSize)
	if err != nil {
		return 0, nil, err
	}
	list := []any{}
	for i := range units {
		if name := names[units[i].ID]; name != "" {
			list = append(list, s.view(&units[i], name, false))
		}
	}
	body := map[string]any{"value": list}
	if next != "" {
		link := *r.URL
		query := link.Query()
		query.Set("$skiptoken", next)
		link.RawQuery = query.Encode()
		body["nextLink"] = link.String()
	}
	return http.StatusOK, body, nil
}

// view is what Azure shows of a group: neither secrets, nor, in a list, states.
func (s *Server) view(u *grouptest.Unit, name string, states bool) *aci.ContainerGroup {
	g := *u.Spec.Data.(*Group).shown()
	properties := *g.Properties
	p := &properties
	g.Properties = p
	id := "/subscriptions/" + Subscription + "/resourceGroups/" + ResourceGroup + "/providers/Microsoft.ContainerInstance/containerGroups/" + name
	g.Name, g.ID, g.Type = &name, &id, new("Microsoft.ContainerInstance/containerGroups")
	g.Tags = map[string]*string{}
	for key, value := range u.Tags {
		g.Tags[key] = &value
	}
	if len(u.IPs) > 0 && (p.IPAddress != nil || p.SubnetIDs != nil) {
		address := aci.IPAddress{Type: new(aci.ContainerGroupIPAddressTypePrivate)}
		if p.IPAddress != nil {
			address = *p.IPAddress
		}
		address.IP = &u.IPs[0]
		p.IPAddress = &address
	}
	started := slices.ContainsFunc(u.Containers, func(c podgroup.Container) bool { return c.Now.State != podgroup.Waiting })
	p.ProvisioningState = new("Succeeded")
	switch {
	case u.Phase == podgroup.Pending && s.World.Now().Equal(u.Created):
		p.ProvisioningState = new("Pending")
	case u.Phase == podgroup.Pending:
		p.ProvisioningState = new("Creating")
	case u.Phase == podgroup.Stopping:
		p.ProvisioningState = new("Deleting")
	case u.Over() && !started:
		p.ProvisioningState = new("Failed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.moved[u.Tags[podgroup.TagPodName]]; state != "" {
		p.ProvisioningState = &state
	}
	if states {
		addStates(p, u, started)
	}
	if states && s.stopped[u.ID] {
		p.InstanceView.State = new("Stopped")
	}
	return &g
}

// addStates adds the instance views.
func addStates(p *aci.ContainerGroupPropertiesProperties, u *grouptest.Unit, started bool) {
	var events []*aci.Event
	for _, e := range u.Events {
		events = append(events, &aci.Event{Count: new(int32(1)), FirstTimestamp: &e.At, LastTimestamp: &e.At, Name: &e.Reason, Message: &e.Message, Type: &e.Type})
	}
	state := map[podgroup.Phase]string{podgroup.Running: "Running", podgroup.Succeeded: "Succeeded", podgroup.Failed: "Failed", podgroup.Stopping: "Running"}[u.Phase]
	if state == "" || u.Over() && !started {
		state = "Pending"
	}
	p.InstanceView = &aci.ContainerGroupPropertiesInstanceView{State: &state, Events: events}
	if !started {
		return
	}
	p.InitContainers, p.Containers = slices.Clone(p.InitContainers), slices.Clone(p.Containers)
	for i, c := range u.Containers {
		now, last := stateOf(&c.Now), (*aci.ContainerState)(nil)
		if c.Last.State == podgroup.Terminated {
			last = stateOf(&c.Last)
		}
		if i < len(p.InitContainers) {
			properties := *p.InitContainers[i].Properties
			properties.InstanceView = &aci.InitContainerPropertiesDefinitionInstanceView{CurrentState: now, PreviousState: last, RestartCount: &c.Restarts}
			p.InitContainers[i] = &aci.InitContainerDefinition{Name: p.InitContainers[i].Name, Properties: &properties}
			continue
		}
		at := i - len(p.InitContainers)
		properties := *p.Containers[at].Properties
		properties.InstanceView = &aci.ContainerPropertiesInstanceView{CurrentState: now, PreviousState: last, RestartCount: &c.Restarts}
		p.Containers[at] = &aci.Container{Name: p.Containers[at].Name, Properties: &properties}
	}
}

func stateOf(r *podgroup.Run) *aci.ContainerState {
	s := &aci.ContainerState{State: new("Waiting"), DetailStatus: &r.Reason}
	switch r.State {
	case podgroup.Executing:
		s = &aci.ContainerState{State: new("Running"), StartTime: &r.Started, DetailStatus: new("")}
	case podgroup.Terminated:
		s = &aci.ContainerState{State: new("Terminated"), StartTime: &r.Started, FinishTime: &r.Finished, ExitCode: &r.ExitCode, DetailStatus: &r.Reason}
	}
	return s
}

func (s *Server) usage() any {
	return map[string]any{"value": []any{
		map[string]any{"unit": "Count", "currentValue": len(s.World.Units(nil)), "limit": s.MaxGroups, "name": map[string]any{"value": "ContainerGroups", "localizedValue": "Container Groups"}},
		map[string]any{"unit": "Count", "currentValue": 0, "limit": 100, "name": map[string]any{"value": "StandardCores", "localizedValue": "Standard Cores"}},
	}}
}

func limits() any {
	of := func(gpu string, cpu, memory, gpus float64) any {
		return map[string]any{"resourceType": "containerGroups", "osType": "Linux", "location": Region, "ipAddressType": "Public", "gpu": gpu,
			"capabilities": map[string]any{"maxMemoryInGB": memory, "maxCpu": cpu, "maxGpuCount": gpus}}
	}
	return map[string]any{"value": []any{of("None", publishedCPU, publishedGB, 0), of("V100", 24, 448, 4)}}
}
