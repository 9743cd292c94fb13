package ecitest

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func itoa(n int) string { return strconv.Itoa(n) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// find returns a group by its ID.
func (s *Server) find(p params) (grouptest.Unit, error) {
	if p["ContainerGroupId"] == "" {
		return grouptest.Unit{}, missing("ContainerGroupId")
	}
	return s.Unit(p["ContainerGroupId"])
}

// list returns a page of groups.
func (s *Server) list(p params, limit int) (page []grouptest.Unit, next string, err error) {
	if p["Limit"] != "" {
		if n := p.Integer("Limit"); n < 1 || n > limit {
			return nil, "", invalid("Limit", "The limit has to be from 1 to %d.", limit)
		}
		limit = p.Integer("Limit")
	}
	ids, err := idsOf(p)
	if err != nil {
		return nil, "", err
	}
	if since := p.Integer("SinceSecond"); p["SinceSecond"] != "" && (since < 60 || since > 3600) {
		return nil, "", invalid("SinceSecond", "It is not between 60 and 3600.")
	}
	now := s.Now()
	s.mu.Lock()
	hidden := p["Action"] == "DescribeContainerGroups" && s.hideGroups || p["Action"] == "DescribeContainerGroupStatus" && s.hideStatuses
	s.mu.Unlock()
	all := s.Units(func(u *grouptest.Unit) bool {
		if hidden {
			return false
		}
		if since := p.Integer("SinceSecond"); since > 0 && now.Sub(u.Changed) > time.Duration(since)*time.Second {
			return false
		}
		for _, tag := range p.Each("Tag") {
			if u.Tags[tag["Key"]] != tag["Value"] {
				return false
			}
		}
		return ids == nil || slices.Contains(ids, u.ID)
	})
	return s.Page(all, p["NextToken"], limit)
}

// idsOf returns the groups that a call names; nil if it names none.
func idsOf(p params) (ids []string, err error) {
	text := p["ContainerGroupIds"]
	if text != "" && (json.Unmarshal([]byte(text), &ids) != nil || len(ids) > 20) {
		return nil, invalid("ContainerGroupIds", "It is no list in JSON, or one of more than 20.")
	}
	return ids, nil
}

// describeGroups is DescribeContainerGroups.
func (s *Server) describeGroups(p params) (map[string]any, error) {
	page, next, err := s.list(p, 20)
	type group struct {
		eci.DescribeContainerGroupsContainerGroup0
		SpotStrategy string
	}
	groups := []group{}
	for i := range page {
		g := group{s.group(&page[i]), page[i].Spec.Data.(params)["SpotStrategy"]}
		if p["WithEvent"] != "true" {
			g.Events = nil
		}
		groups = append(groups, g)
	}
	return map[string]any{"NextToken": next, "TotalCount": len(groups), "ContainerGroups": groups}, err
}

// describeStatus is DescribeContainerGroupStatus.
func (s *Server) describeStatus(p params) (map[string]any, error) {
	page, next, err := s.list(p, 200)
	data := []map[string]any{}
	for i := range page {
		u, g := &page[i], s.group(&page[i])
		var containers []map[string]any
		for _, c := range g.Containers {
			containers = append(containers, map[string]any{"Name": c.Name, "Image": c.Image, "Ready": c.Ready, "RestartCount": c.RestartCount, "State": c.CurrentState})
		}
		data = append(data, map[string]any{
			"ContainerGroupId": u.ID, "Name": g.ContainerGroupName, "Namespace": "default", "Status": g.Status, "uuid": "group-" + u.ID,
			"PodStatus": map[string]any{"Phase": g.Status, "PodIp": g.IntranetIp, "ContainerStatuses": containers},
		})
	}
	return map[string]any{"NextToken": next, "Data": data}, err
}

// group returns a group as the API does.
func (s *Server) group(u *grouptest.Unit) eci.DescribeContainerGroupsContainerGroup0 {
	p := u.Spec.Data.(params)
	names := map[podgroup.Phase]string{
		podgroup.Pending: "Scheduling", podgroup.Running: "Running", podgroup.Updating: "Updating", podgroup.Stopping: "Terminating",
		podgroup.Succeeded: "Succeeded", podgroup.Failed: "Failed",
	}
	g := eci.DescribeContainerGroupsContainerGroup0{
		ContainerGroupId: u.ID, ContainerGroupName: p["ContainerGroupName"], RegionId: Region, RestartPolicy: u.Spec.RestartPolicy,
		Status: names[u.Phase], CreationTime: stamp(u.Created),
	}
	if len(u.IPs) > 0 {
		g.IntranetIp = u.IPs[0]
	}
	if u.Phase == podgroup.Succeeded {
		g.SucceededTime = stamp(u.Ended)
	} else {
		g.FailedTime = stamp(u.Ended)
	}
	s.mu.Lock()
	if status := s.statuses[u.ID]; status != "" {
		g.Status = status
	}
	s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(u.Tags)) {
		g.Tags = append(g.Tags, eci.DescribeContainerGroupsLabel1{Key: key, Value: u.Tags[key]})
	}
	for i := range u.Containers {
		if i < len(u.Spec.InitContainers) {
			g.InitContainers = append(g.InitContainers, container(&u.Containers[i]))
		} else {
			g.Containers = append(g.Containers, container(&u.Containers[i]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.Files)) {
		v := eci.DescribeContainerGroupsVolume1{Name: name, Type: "ConfigFileVolume"}
		for _, path := range slices.Sorted(maps.Keys(u.Files[name])) {
			v.ConfigFileVolumeConfigFileToPaths = append(v.ConfigFileVolumeConfigFileToPaths, eci.DescribeContainerGroupsConfigFileVolumeConfigFileToPath2{
				Path: path, Content: base64.StdEncoding.EncodeToString(u.Files[name][path].Data),
			})
		}
		g.Volumes = append(g.Volumes, v)
	}
	for _, e := range u.Events {
		g.Events = append(g.Events, eci.DescribeContainerGroupsEvent1{
			Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: stamp(e.At), LastTimestamp: stamp(e.At),
		})
	}
	return g
}

func container(c *podgroup.Container) eci.DescribeContainerGroupsContainer1 {
	return eci.DescribeContainerGroupsContainer1{
		Name: c.Name, Image: c.Image, RestartCount: int(c.Restarts), Ready: c.Now.State == podgroup.Executing,
		CurrentState: run(&c.Now), PreviousState: eci.DescribeContainerGroupsPreviousState2(run(&c.Last)),
	}
}

func run(r *podgroup.Run) eci.DescribeContainerGroupsCurrentState2 {
	states := map[podgroup.State]string{podgroup.Waiting: "Waiting", podgroup.Executing: "Running", podgroup.Terminated: "Terminated"}
	return eci.DescribeContainerGroupsCurrentState2{
		State: states[r.State], Reason: r.Reason, Message: r.Message, ExitCode: int(r.ExitCode), Signal: int(r.Signal),
		StartTime: stamp(r.Started), FinishTime: stamp(r.Finished),
	}
}

// describeLog is DescribeContainerLog.
func (s *Server) describeLog(p params) (map[string]any, error) {
	u, err := s.find(p)
	if err != nil {
		return nil, err
	}
	name := p["ContainerName"]
	if c := u.Container(name); c == nil || c.Now.State == podgroup.Waiting && c.Last.State == podgroup.Waiting {
		return nil, refuse(http.StatusNotFound, "ContainerNotFound", "There is no container %q, or it has not started.", name)
	}
	q := podgroup.LogQuery{Tail: 500, Previous: p["LastTime"] == "true", Timestamps: p["Timestamps"] == "true"}
	if p["StartTime"] != "" {
		if q.Since, err = time.Parse(time.RFC3339, p["StartTime"]); err != nil {
			return nil, invalid("StartTime", "%q is no time.", p["StartTime"])
		}
	}
	if p["Tail"] != "" {
		if q.Tail = p.Integer("Tail"); q.Tail < 1 || q.Tail > 2000 {
			return nil, invalid("Tail", "The tail has to be from 1 to 2000.")
		}
	}
	text, err := s.LogText(u.ID, name, q)
	return map[string]any{"ContainerName": name, "Content": text[max(0, len(text)-1<<20):]}, err
}

// describeMetrics is DescribeMultiContainerGroupMetric, with the same figures each time.
func (s *Server) describeMetrics(p params) (map[string]any, error) {
	ids, err := idsOf(p)
	if err != nil || len(ids) == 0 {
		return nil, missing("ContainerGroupIds")
	}
	data := []eci.DescribeMultiContainerGroupMetricRecord0{}
	for _, id := range ids {
		u, err := s.Unit(id)
		if err != nil || u.Phase != podgroup.Running || s.status(id) != "" {
			continue
		}
		r := eci.DescribeMultiContainerGroupMetricPodStat1{Timestamp: stamp(s.Now())}
		for _, c := range u.Containers[len(u.Spec.InitContainers):] {
			one := eci.DescribeMultiContainerGroupMetricContainer2{Name: c.Name}
			one.CPU.UsageNanoCores, one.CPU.UsageCoreNanoSeconds = 10_000_000, int64(s.Now().Sub(u.Created))/100
			one.Memory.UsageBytes, one.Memory.WorkingSet, one.Memory.Rss = 32<<20, 24<<20, 16<<20
			r.Containers = append(r.Containers, one)
			r.CPU.UsageNanoCores += one.CPU.UsageNanoCores
			r.CPU.UsageCoreNanoSeconds += one.CPU.UsageCoreNanoSeconds
			r.Memory.UsageBytes += one.Memory.UsageBytes
			r.Memory.WorkingSet += one.Memory.WorkingSet
		}
		r.Network.Interfaces = []eci.DescribeMultiContainerGroupMetricInterface3{
			{Name: "lo", RxBytes: 1, TxBytes: 1}, {Name: "eth0", RxBytes: 3 << 20, TxBytes: 2 << 20},
		}
		older := r
		older.Timestamp, older.CPU.UsageNanoCores = stamp(s.Now().Add(-time.Minute)), 1
		data = append(data, eci.DescribeMultiContainerGroupMetricRecord0{ContainerGroupId: id, Records: []eci.DescribeMultiContainerGroupMetricPodStat1{older, r}})
	}
	return map[string]any{"MonitorDatas": data}, nil
}
