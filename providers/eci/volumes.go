package eci

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// The types of volumes.
const (
	emptyDirVolume   = "EmptyDirVolume"
	configFileVolume = "ConfigFileVolume"
	diskVolume       = "DiskVolume"
	nfsVolume        = "NFSVolume"
	flexVolume       = "FlexVolume"
)

// flexDrivers are the flexVolume drivers that ECI has.
var flexDrivers = []string{"alicloud/disk", "alicloud/nas", "alicloud/oss"}

// The CSI drivers whose volumes ECI mounts.
const (
	diskDriver = "diskplugin.csi.alibabacloud.com"
	nasDriver  = "nasplugin.csi.alibabacloud.com"
)

// setVolumes sets the volumes of a pod. An error is permanent.
func (p params) setVolumes(r *podgroup.Request) error {
	for i := range r.Pod.Spec.Volumes {
		v := &r.Pod.Spec.Volumes[i]
		prefix := fmt.Sprintf("Volume.%d.", i+1)
		p[prefix+"Name"] = v.Name
		bound := r.Claims[v.Name]
		switch {
		case bound != nil:
			if err := p.setBound(prefix, v, bound); err != nil {
				return err
			}
		case volume.HasContents(v):
			p[prefix+"Type"] = configFileVolume
			p.setFiles(prefix, r.Files[v.Name])
		case v.NFS != nil:
			p.setNFS(prefix, v.NFS.Server, v.NFS.Path, v.NFS.ReadOnly)
		case v.FlexVolume != nil:
			p.setFlex(prefix, v.FlexVolume.Driver, v.FlexVolume.FSType, v.FlexVolume.Options, v.FlexVolume.ReadOnly)
		default:
			p[prefix+"Type"] = emptyDirVolume
			if v.EmptyDir != nil {
				p.set(prefix+"EmptyDirVolume.Medium", string(v.EmptyDir.Medium))
				if limit := v.EmptyDir.SizeLimit; limit != nil {
					p[prefix+"EmptyDirVolume.SizeLimit"] = limit.String()
				}
			}
		}
	}
	return nil
}

// setFiles sets the files of a volume, sorted by path, with content in base64 and mode in
// octal digits, as the API takes them.
func (p params) setFiles(prefix string, files volume.Files) {
	for i, path := range slices.Sorted(maps.Keys(files)) {
		file := fmt.Sprintf("%sConfigFileVolume.ConfigFileToPath.%d.", prefix, i+1)
		p[file+"Path"] = path
		p[file+"Content"] = base64.StdEncoding.EncodeToString(files[path].Data)
		p[file+"Mode"] = "0" + strconv.FormatUint(uint64(files[path].Mode.Perm()), 8)
	}
}

func (p params) setNFS(prefix, server, path string, readOnly bool) {
	p[prefix+"Type"] = nfsVolume
	prefix += "NFSVolume."
	p[prefix+"Server"], p[prefix+"Path"], p[prefix+"ReadOnly"] = server, path, strconv.FormatBool(readOnly)
}

// setFlex sets a flexVolume, whose options are a JSON object.
func (p params) setFlex(prefix, driver, fsType string, options map[string]string, readOnly bool) {
	all := map[string]string{}
	maps.Copy(all, options)
	if readOnly {
		all["readOnly"] = "true"
	}
	text, err := json.Marshal(all)
	if err != nil { // cannot happen with strings
		text = []byte("{}")
	}
	p[prefix+"Type"] = flexVolume
	prefix += "FlexVolume."
	p[prefix+"Driver"], p[prefix+"Options"] = driver, string(text)
	p.set(prefix+"FsType", fsType)
}

// setBound sets the volume that a claim is bound to.
func (p params) setBound(prefix string, v *corev1.Volume, bound *corev1.PersistentVolume) error {
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	csi, nfs, flex := bound.Spec.CSI, bound.Spec.NFS, bound.Spec.FlexVolume
	switch {
	case csi != nil && csi.Driver == diskDriver && !readOnly:
		p[prefix+"Type"] = diskVolume
		p[prefix+"DiskVolume.DiskId"] = csi.VolumeHandle
		p.set(prefix+"DiskVolume.FsType", csi.FSType)
	case csi != nil && csi.Driver == nasDriver && csi.VolumeAttributes["server"] != "":
		path := csi.VolumeAttributes["path"]
		if path == "" {
			path = "/"
		}
		p.setNFS(prefix, csi.VolumeAttributes["server"], path, readOnly || csi.ReadOnly)
	case nfs != nil:
		p.setNFS(prefix, nfs.Server, nfs.Path, readOnly || nfs.ReadOnly)
	case flex != nil && flex.SecretRef == nil && slices.Contains(flexDrivers, flex.Driver):
		p.setFlex(prefix, flex.Driver, flex.FSType, flex.Options, readOnly || flex.ReadOnly)
	default:
		return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: the claim of volumes[%s] is bound to %s, which is no disk (%s, not read-only), NAS (%s, with a server) or NFS volume, nor a flexVolume of ECI without a Secret",
			v.Name, bound.Name, diskDriver, nasDriver))
	}
	return nil
}
