package eci

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

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

// configFiles is the list of the files of a volume.
const configFiles = "ConfigFileVolume.ConfigFileToPath"

// volumesOf returns the volumes of a pod. An error is permanent.
func volumesOf(r *podgroup.Request) ([]object, error) {
	var list []object
	for i := range r.Pod.Spec.Volumes {
		v := &r.Pod.Spec.Volumes[i]
		var o object
		switch bound := r.Claims[v.Name]; {
		case bound != nil:
			if o = boundVolume(v, bound); o == nil {
				return nil, podgroup.NotSupportedf("the claim of volumes[%s] is bound to %s, which is no disk (%s, not read-only), NAS (%s, with a server) or NFS volume, nor a flexVolume of ECI without a Secret",
					v.Name, bound.Name, diskDriver, nasDriver)
			}
		case volume.HasContents(v):
			if err := checkFiles(v.Name, r.Files[v.Name]); err != nil {
				return nil, err
			}
			o = object{"Type": configFileVolume, configFiles: files(r.Files[v.Name], true)}
		case v.NFS != nil:
			o = nfs(v.NFS.Server, v.NFS.Path, v.NFS.ReadOnly)
		case v.FlexVolume != nil:
			o = flex(v.FlexVolume.Driver, v.FlexVolume.FSType, v.FlexVolume.Options, v.FlexVolume.ReadOnly)
		default:
			o = object{"Type": emptyDirVolume}
			if v.EmptyDir != nil {
				o["EmptyDirVolume"] = object{"Medium": v.EmptyDir.Medium, "SizeLimit": v.EmptyDir.SizeLimit}
			}
		}
		o["Name"] = v.Name
		list = append(list, o)
	}
	return list, nil
}

// checkFiles returns an error, which is permanent, for more files than a volume of the API may
// have.
func checkFiles(name string, files volume.Files) error {
	size := 0
	for _, file := range files {
		size += len(file.Data)
	}
	if len(files) > maxFiles || size > maxVolumeFiles {
		return podgroup.NotSupportedf("volumes[%s] has %d files of %d bytes in all: ECI takes %d files of %d bytes", name, len(files), size, maxFiles, maxVolumeFiles)
	}
	return nil
}

// files returns the files of a volume, sorted by path, with content in base64 and mode in
// octal digits, as the API takes them. It has no modes in an update.
func files(files volume.Files, modes bool) (list []object) {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		o := object{"Path": path, "Content": base64.StdEncoding.EncodeToString(files[path].Data)}
		if modes {
			o["Mode"] = fmt.Sprintf("0%o", files[path].Mode.Perm())
		}
		list = append(list, o)
	}
	return list
}

func nfs(server, path string, readOnly bool) object {
	return object{"Type": nfsVolume, "NFSVolume": object{"Server": server, "Path": path, "ReadOnly": &readOnly}}
}

// flex returns a flexVolume, whose options are a JSON object.
func flex(driver, fsType string, options map[string]string, readOnly bool) object {
	all := map[string]string{}
	maps.Copy(all, options)
	if readOnly {
		all["readOnly"] = "true"
	}
	return object{"Type": flexVolume, "FlexVolume": object{"Driver": driver, "FsType": fsType, "Options": jsonText(all)}}
}

// boundVolume returns the volume that a claim is bound to; nil if ECI does not have it.
func boundVolume(v *corev1.Volume, bound *corev1.PersistentVolume) object {
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	switch source := &bound.Spec.PersistentVolumeSource; {
	case source.CSI != nil && source.CSI.Driver == diskDriver && !readOnly:
		return object{"Type": diskVolume, "DiskVolume": object{"DiskId": source.CSI.VolumeHandle, "FsType": source.CSI.FSType}}
	case source.CSI != nil && source.CSI.Driver == nasDriver && source.CSI.VolumeAttributes["server"] != "":
		of := source.CSI.VolumeAttributes
		return nfs(of["server"], cmp.Or(of["path"], "/"), readOnly || source.CSI.ReadOnly)
	case source.NFS != nil:
		return nfs(source.NFS.Server, source.NFS.Path, readOnly || source.NFS.ReadOnly)
	case source.FlexVolume != nil && source.FlexVolume.SecretRef == nil && slices.Contains(flexDrivers, source.FlexVolume.Driver):
		return flex(source.FlexVolume.Driver, source.FlexVolume.FSType, source.FlexVolume.Options, readOnly || source.FlexVolume.ReadOnly)
	}
	return nil
}
