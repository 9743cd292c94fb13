package eci

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// The types of volumes.
const (
	emptyDirVolume   = "EmptyDirVolume"
	configFileVolume = "ConfigFileVolume"
	nfsVolume        = "NFSVolume"
	flexVolume       = "FlexVolume"
)

func (r *CreateRequest) setVolumes(pod *corev1.Pod, contents map[string]volume.Files) {
	var volumes []eci.CreateContainerGroupVolume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		made := eci.CreateContainerGroupVolume{Name: v.Name}
		switch {
		case volume.HasContents(v):
			made.Type = configFileVolume
			files := configFiles(contents[v.Name])
			made.ConfigFileVolume.ConfigFileToPath = &files
		case v.NFS != nil:
			made.Type = nfsVolume
			made.NFSVolume = eci.CreateContainerGroupNFSVolume{
				Server: v.NFS.Server, Path: v.NFS.Path, ReadOnly: boolean(v.NFS.ReadOnly),
			}
		case v.FlexVolume != nil:
			made.Type = flexVolume
			made.FlexVolume = eci.CreateContainerGroupFlexVolume{
				Driver: v.FlexVolume.Driver, FsType: v.FlexVolume.FSType, Options: flexOptions(v.FlexVolume),
			}
		default:
			made.Type = emptyDirVolume
			if v.EmptyDir != nil {
				made.EmptyDirVolume.Medium = string(v.EmptyDir.Medium)
				if limit := v.EmptyDir.SizeLimit; limit != nil {
					r.Extra[fmt.Sprintf("Volume.%d.EmptyDirVolume.SizeLimit", i+1)] = limit.String()
				}
			}
		}
		volumes = append(volumes, made)
	}
	if len(volumes) > 0 {
		r.Volume = &volumes
	}
}

// configFiles returns files sorted by path, with content in base64 and mode in octal
// digits, as the API takes them.
func configFiles(files volume.Files) []eci.CreateContainerGroupConfigFileToPath {
	list := []eci.CreateContainerGroupConfigFileToPath{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		list = append(list, eci.CreateContainerGroupConfigFileToPath{
			Path:    path,
			Content: base64.StdEncoding.EncodeToString(files[path].Data),
			Mode:    requests.Integer("0" + strconv.FormatUint(uint64(files[path].Mode.Perm()), 8)),
		})
	}
	return list
}

// flexOptions returns the options of a flexVolume as a JSON object.
func flexOptions(v *corev1.FlexVolumeSource) string {
	options := maps.Clone(v.Options)
	if options == nil {
		options = map[string]string{}
	}
	if v.ReadOnly {
		options["readOnly"] = "true"
	}
	text, err := json.Marshal(options)
	if err != nil { // cannot happen with strings
		return "{}"
	}
	return string(text)
}

func mounts(c *corev1.Container) *[]eci.CreateContainerGroupVolumeMount {
	var list []eci.CreateContainerGroupVolumeMount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		list = append(list, eci.CreateContainerGroupVolumeMount{
			Name: m.Name, MountPath: m.MountPath, SubPath: m.SubPath, ReadOnly: boolean(m.ReadOnly),
		})
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}
