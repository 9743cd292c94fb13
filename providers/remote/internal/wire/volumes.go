package wire

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// PullSecrets is what the name of a volume begins with whose files are the data of one of the pod's
// image pull secrets, whose name follows. No volume of a pod has a slash in its name.
const PullSecrets = "imagePullSecrets/"

// FromFiles returns the message for a volume. Equal files make equal messages.
func FromFiles(name string, files volume.Files) *pb.Volume {
	out := &pb.Volume{Name: name}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := &pb.VolumeFile{Path: path, Data: files[path].Data, Mode: uint32(files[path].Mode.Perm())}
		if uid := files[path].UID; uid != nil {
			f.Owner = &pb.FileOwner{Uid: *uid}
		}
		out.Files = append(out.Files, f)
	}
	return out
}

// ToFiles returns the files of volumes, by the volumes' names. The error, of class InvalidInput,
// is of paths that lead out of a volume, or that cannot be together in one.
func ToFiles(in []*pb.Volume) (map[string]volume.Files, error) {
	all := make(map[string]volume.Files, len(in))
	for _, v := range in {
		files := make(volume.Files, len(v.GetFiles()))
		for _, f := range v.GetFiles() {
			file := volume.File{Data: f.GetData(), Mode: fs.FileMode(f.GetMode()) & fs.ModePerm}
			if owner := f.GetOwner(); owner != nil {
				file.UID = &owner.Uid
			}
			files[f.GetPath()] = file
		}
		if err := files.Validate(); err != nil {
			return nil, errdefs.AsInvalidInput(fmt.Errorf("volume %q: %w", v.GetName(), err))
		}
		all[v.GetName()] = files
	}
	return all, nil
}
