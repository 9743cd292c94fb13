package eci

import (
	"cmp"
	"encoding/base64"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// group is a container group. The SDK does not have all that the API says.
type group struct {
	eci.DescribeContainerGroupsContainerGroup0
	SpotStrategy string
}

// statusExpired is that of a spot group that was taken back.
const statusExpired = "Expired"

// phases are the statuses of a container group.
var phases = map[string]podgroup.Phase{
	"Scheduling": podgroup.Pending, "Pending": podgroup.Pending,
	"Running": podgroup.Running, "Updating": podgroup.Updating, "Restarting": podgroup.Updating,
	"Terminating": podgroup.Stopping, "Succeeded": podgroup.Succeeded, "Failed": podgroup.Failed,
	"ScheduleFailed": podgroup.Failed, statusExpired: podgroup.Failed,
}

// unitOf returns what the API reports of a group.
func unitOf(g *group) podgroup.Unit {
	u := podgroup.Unit{
		ID: g.ContainerGroupId, Tags: map[string]string{}, Phase: phases[g.Status],
		Created: timeOf(g.CreationTime), Ended: timeOf(cmp.Or(g.FailedTime, g.SucceededTime, g.ExpiredTime)),
		Data: g.SpotStrategy != "" && g.SpotStrategy != "NoSpot",
	}
	for _, tag := range g.Tags {
		u.Tags[tag.Key] = tag.Value
	}
	u.Tags[podgroup.TagNamespace] = cmp.Or(u.Tags[tagNamespace], u.Tags[podgroup.TagNamespace])
	for _, ip := range []string{g.IntranetIp, g.Ipv6Address} {
		if ip != "" {
			u.IPs = append(u.IPs, ip)
		}
	}
	for _, list := range [][]eci.DescribeContainerGroupsContainer1{g.InitContainers, g.Containers} {
		for i := range list {
			u.Containers = append(u.Containers, containerOf(&list[i]))
		}
	}
	for _, e := range g.Events {
		u.Events = append(u.Events, podgroup.Event{Type: e.Type, Reason: e.Reason, Message: e.Message, At: timeOf(e.LastTimestamp)})
	}
	if g.Status == "ScheduleFailed" || g.Status == statusExpired {
		u.Failure = &podspec.Failure{Reason: g.Status, Message: cmp.Or(u.LastWarning(), "ECI gives no reason"), Disrupted: g.Status == statusExpired}
	}
	u.Files = filesOf(g)
	return u
}

func containerOf(c *eci.DescribeContainerGroupsContainer1) podgroup.Container {
	return podgroup.Container{
		Name: c.Name, Image: c.Image, Restarts: int32(c.RestartCount), Ready: &c.Ready,
		Now: runOf(c.CurrentState), Last: runOf(eci.DescribeContainerGroupsCurrentState2(c.PreviousState)),
	}
}

func runOf(s eci.DescribeContainerGroupsCurrentState2) podgroup.Run {
	run := podgroup.Run{
		Reason: cmp.Or(s.Reason, s.DetailStatus), Message: s.Message, ExitCode: int32(s.ExitCode), Signal: int32(s.Signal),
		Started: timeOf(s.StartTime), Finished: timeOf(s.FinishTime),
	}
	switch s.State {
	case "Running":
		run.State = podgroup.Executing
	case "Terminated":
		run.State = podgroup.Terminated
	}
	return run
}

// filesOf returns the files that the API reports for a group; nil if it reports none.
func filesOf(g *group) map[string]volume.Files {
	var all map[string]volume.Files
	for _, v := range g.Volumes {
		if v.Type != configFileVolume {
			continue
		}
		files := volume.Files{}
		for _, f := range v.ConfigFileVolumeConfigFileToPaths {
			content, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil { // the API may not report it as it was sent
				content = []byte(f.Content)
			}
			files[f.Path] = volume.File{Data: content}
		}
		if all == nil {
			all = map[string]volume.Files{}
		}
		all[v.Name] = files
	}
	return all
}

// timeOf parses a timestamp of the API, which is in UTC. The result is zero if text is
// not a timestamp.
func timeOf(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}
