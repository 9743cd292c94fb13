package ecitest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
)

// groupState is a container group of the fake.
type groupState struct {
	number     int
	group      eci.DescribeContainerGroupsContainerGroup0
	params     params
	created    time.Time
	started    time.Time // zero until it runs
	deleted    time.Time // zero until its deletion is requested
	containers map[string]*container
	logs       map[string][]line
}

// container is the state of a container that is not returned.
type container struct{ previous []line }

type line struct {
	at   time.Time
	text string
}

// find returns a group by its ID. The caller holds s.mu.
func (s *Server) find(p params) (*groupState, *apiError) {
	if p["ContainerGroupId"] == "" {
		return nil, missing("ContainerGroupId")
	}
	for _, h := range s.groups {
		if h.group.ContainerGroupId == p["ContainerGroupId"] {
			return h, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "ContainerGroupNotFound", "The specified container group %q does not exist.", p["ContainerGroupId"])
}

const maxPage = 20

// describeGroups is DescribeContainerGroups.
func (s *Server) describeGroups(p params) (map[string]any, *apiError) {
	limit := maxPage
	if p["Limit"] != "" {
		if limit = p.integer("Limit"); limit < 1 || limit > maxPage {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.Limit", "The limit has to be from 1 to %d.", maxPage)
		}
	}
	var ids []string
	if text := p["ContainerGroupIds"]; text != "" {
		if json.Unmarshal([]byte(text), &ids) != nil {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.ContainerGroupIds", "It is no list in JSON.")
		}
	}
	all := []eci.DescribeContainerGroupsContainerGroup0{}
	for _, h := range s.groups {
		if h.matches(p, ids) && !s.noRight {
			group := h.group
			if p["WithEvent"] != "true" {
				group.Events = nil
			}
			if s.hideFiles {
				group.Volumes = nil
			}
			all = append(all, group)
		}
	}
	from := 0
	if token := p["NextToken"]; token != "" {
		var err error
		if from, err = strconv.Atoi(token); err != nil || from > len(all) {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.NextToken", "The token %q is not valid.", token)
		}
	}
	to, next := min(from+limit, len(all)), ""
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return map[string]any{"TotalCount": len(all), "NextToken": next, "ContainerGroups": all[from:to]}, nil
}

func (h *groupState) matches(p params, ids []string) bool {
	for _, tag := range p.each("Tag") {
		if !slices.Contains(h.group.Tags, eci.DescribeContainerGroupsLabel1{Key: tag["Key"], Value: tag["Value"]}) {
			return false
		}
	}
	return (ids == nil || slices.Contains(ids, h.group.ContainerGroupId)) &&
		(p["ContainerGroupName"] == "" || p["ContainerGroupName"] == h.group.ContainerGroupName) &&
		(p["Status"] == "" || p["Status"] == h.group.Status)
}

// deleteGroup is DeleteContainerGroup.
func (s *Server) deleteGroup(p params) (map[string]any, *apiError) {
	h, refused := s.find(p)
	if refused != nil {
		return nil, refused
	}
	if h.deleted.IsZero() {
		h.deleted = s.now()
		h.group.Status = "Terminating"
	}
	return nil, nil
}

// updateGroup is UpdateContainerGroup, for images, credentials and volumes with files.
// The volumes of the request replace all of the group's.
func (s *Server) updateGroup(p params) (map[string]any, *apiError) {
	h, refused := s.find(p)
	if refused != nil {
		return nil, refused
	}
	if h.group.Status != "Running" {
		return nil, refuse(http.StatusBadRequest, "IncorrectStatus", "The container group is %s.", h.group.Status)
	}
	for _, v := range p.each("Volume") {
		if refused := checkVolume(v); refused != nil {
			return nil, refused
		}
	}
	if len(p.each("Volume")) > 0 {
		h.group.Volumes = volumesOf(p)
	}
	for name, value := range p {
		if strings.HasPrefix(name, "ImageRegistryCredential.") {
			h.params[name] = value
		}
	}
	for _, update := range p.each("Container") {
		c := h.find(update["Name"])
		if c == nil {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.Container", "There is no container %q.", update["Name"])
		}
		if image := update["Image"]; image != "" && image != c.Image {
			c.Image = image
			h.restart(c, 0, s.now())
		}
	}
	return nil, nil
}

// find returns a container of the group, or nil.
func (h *groupState) find(name string) *eci.DescribeContainerGroupsContainer1 {
	for i := range h.group.Containers {
		if h.group.Containers[i].Name == name {
			return &h.group.Containers[i]
		}
	}
	return nil
}

// volumesOf returns the volumes in the parameters of a call.
func volumesOf(p params) []eci.DescribeContainerGroupsVolume1 {
	var volumes []eci.DescribeContainerGroupsVolume1
	for _, v := range p.each("Volume") {
		made := eci.DescribeContainerGroupsVolume1{Name: v["Name"], Type: v["Type"]}
		for _, f := range v.each("ConfigFileVolume.ConfigFileToPath") {
			made.ConfigFileVolumeConfigFileToPaths = append(made.ConfigFileVolumeConfigFileToPaths,
				eci.DescribeContainerGroupsConfigFileVolumeConfigFileToPath2{Path: f["Path"], Content: f["Content"]})
		}
		volumes = append(volumes, made)
	}
	return volumes
}

// Files returns the files of a volume of a pod's group by path, as they were sent.
func (s *Server) Files(pod, volume string) (files map[string]string, err error) {
	err = s.of(pod, func(h *groupState) error {
		for _, v := range h.group.Volumes {
			if v.Name != volume {
				continue
			}
			files = map[string]string{}
			for _, f := range v.ConfigFileVolumeConfigFileToPaths {
				files[f.Path] = f.Content
			}
		}
		return nil
	})
	return files, err
}
