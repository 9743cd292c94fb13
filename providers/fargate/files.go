package fargate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The container that writes the files of volumes, which it has in a variable, and where it has
// these volumes.
const (
	filesContainer = "virtual-kubelet-files"
	filesVariable  = "VIRTUAL_KUBELET_FILES"
	filesPath      = "/volumes"
	filesScript    = `printf %s "$` + filesVariable + `" | base64 -d | tar -xzp -C ` + filesPath
)

// maxFiles is how many bytes the files of a pod may have, packed: a definition has 64 KiB.
const maxFiles = 48 << 10

// addFiles adds the container that writes the files of volumes, if there are any, and returns
// what the others depend on.
func (b *backend) addFiles(r *podgroup.Request, p *plan) ([]types.ContainerDependency, error) {
	if len(r.Files) == 0 {
		return nil, nil
	}
	packed, err := pack(r)
	if err != nil {
		return nil, err
	}
	c := types.ContainerDefinition{
		Name: new(filesContainer), Image: &b.cfg.FilesImage, EntryPoint: []string{"sh", "-c", filesScript}, Essential: new(false), User: new("0"),
		LogConfiguration: b.logs(),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		c.MountPoints = append(c.MountPoints, types.MountPoint{SourceVolume: &name, ContainerPath: new(path.Join(filesPath, name)), ReadOnly: new(false)})
	}
	if b.cfg.SecretsManager {
		c.Secrets = []types.Secret{{Name: new(filesVariable), ValueFrom: p.secrets.add(packed)}}
	} else {
		c.Environment = []types.KeyValuePair{{Name: new(filesVariable), Value: &packed}}
	}
	p.add(c, nil)
	return []types.ContainerDependency{{ContainerName: c.Name, Condition: types.ContainerConditionSuccess}}, nil
}

// pack returns the files of all volumes as an archive, always the same for the same files.
func pack(r *podgroup.Request) (string, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, volume := range slices.Sorted(maps.Keys(r.Files)) {
		for _, name := range slices.Sorted(maps.Keys(r.Files[volume])) {
			file := r.Files[volume][name]
			header := &tar.Header{Name: path.Join(volume, name), Mode: int64(file.Mode.Perm()), Size: int64(len(file.Data)), Typeflag: tar.TypeReg}
			if file.UID != nil {
				header.Uid = int(*file.UID)
			}
			if err := archive.WriteHeader(header); err != nil {
				return "", err
			}
			if _, err := archive.Write(file.Data); err != nil {
				return "", err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	if err := compressed.Close(); err != nil {
		return "", err
	}
	packed := base64.StdEncoding.EncodeToString(out.Bytes())
	if len(packed) > maxFiles {
		return "", errdefs.AsPermanent(fmt.Errorf("the files of all volumes have %d bytes, packed, more than %d", len(packed), maxFiles))
	}
	return packed, nil
}
