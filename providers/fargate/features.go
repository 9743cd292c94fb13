package fargate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// features are what tasks can do.
func (b *backend) features() podgroup.Features {
	const address = "-containers.env.valueFrom.fieldRef.fieldPath=status."
	f := podgroup.Features{
		Fields: []string{
			"restartPolicy", "initContainers", "initContainers.restartPolicy", "-initContainers.livenessProbe", "-initContainers.readinessProbe",
			"volumes.emptyDir", "-volumes.emptyDir.medium", "volumes.persistentVolumeClaim", "volumes.nfs", "-containers.volumeMounts.subPath",
			"securityContext.runAsUser", "securityContext.runAsGroup", "containers.securityContext.runAsUser", "containers.securityContext.runAsGroup",
			"containers.securityContext.readOnlyRootFilesystem", "containers.securityContext.capabilities.drop", "containers.securityContext.capabilities.add=SYS_PTRACE",
			"containers.livenessProbe", "-containers.livenessProbe.httpGet", "-containers.livenessProbe.tcpSocket", "-containers.livenessProbe.grpc", "-containers.livenessProbe.terminationGracePeriodSeconds",
			"containers.readinessProbe", "-containers.readinessProbe.httpGet", "-containers.readinessProbe.tcpSocket", "-containers.readinessProbe.grpc",
			address + "podIP", address + "podIPs", address + "hostIP", address + "hostIPs",
		},
		Ignored: []string{"volumes.emptyDir.sizeLimit"}, Containers: 10, Check: check, Ignores: ignores,
	}
	if b.cfg.FilesImage != "" {
		f.Fields, f.Containers = append(f.Fields, "volumes.configMap", "volumes.secret", "volumes.downwardAPI"), f.Containers-1
	}
	return f
}

// check returns what else of a pod tasks do not have.
func check(pod *corev1.Pod) (missing []string) {
	if n := len(pod.Spec.Containers); n > 1 && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		missing = append(missing, fmt.Sprintf("restartPolicy %s with %d containers, of which the first that ends would end the others", pod.Spec.RestartPolicy, n))
	}
	if name := pod.Annotations[annotationCapacity]; name != "" && name != onDemand && name != onSpot {
		missing = append(missing, fmt.Sprintf("annotation %s with %q, which is neither %s nor %s", annotationCapacity, name, onDemand, onSpot))
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if live, ready := c.LivenessProbe, c.ReadinessProbe; live != nil && ready != nil && live.Exec != nil && ready.Exec != nil && !slices.Equal(live.Exec.Command, ready.Exec.Command) {
			missing = append(missing, fmt.Sprintf("containers[%s] with two different probes: ECS has one health check", c.Name))
		}
		for _, p := range c.Ports {
			if p.Protocol == corev1.ProtocolSCTP {
				missing = append(missing, fmt.Sprintf("containers[%s].ports with protocol SCTP", c.Name))
			}
		}
	}
	return missing
}

// ignores returns what of a pod is done only in part.
func ignores(pod *corev1.Pod) (ignored []string) {
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace > maxStopTimeout {
		ignored = append(ignored, fmt.Sprintf("terminationGracePeriodSeconds %d above %d", *grace, maxStopTimeout))
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever && slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return !podspec.IsSidecar(&c) }) {
		ignored = append(ignored, "the restart of init containers that fail")
	}
	return ignored
}

// isMounted reports whether a volume of a pod is one of the task.
func isMounted(r *podgroup.Request, v *corev1.Volume) bool {
	_, isFiles := r.Files[v.Name]
	return isFiles || v.EmptyDir != nil || v.PersistentVolumeClaim != nil || v.NFS != nil
}

// isReadOnly reports whether no container may write to a volume.
func isReadOnly(r *podgroup.Request, v *corev1.Volume) bool {
	if _, isFiles := r.Files[v.Name]; isFiles {
		return true
	}
	nfs := v.NFS
	if claimed := r.Claims[v.Name]; claimed != nil {
		if csi := claimed.Spec.CSI; csi != nil && csi.ReadOnly {
			return true
		}
		nfs = claimed.Spec.NFS
	}
	return nfs != nil && nfs.ReadOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
}

// efsDriver is the name of the CSI driver whose volumes are EFS.
const efsDriver = "efs.csi.aws.com"

// volumes translates the volumes of a pod: storage of the task, and file systems of EFS.
func volumes(r *podgroup.Request) (list []types.Volume, err error) {
	var wrong []error
	for i := range r.Pod.Spec.Volumes {
		v := &r.Pod.Spec.Volumes[i]
		switch {
		case !isMounted(r, v):
		case v.PersistentVolumeClaim == nil && v.NFS == nil:
			list = append(list, types.Volume{Name: &v.Name})
		default:
			efs, err := fileSystem(v, r.Claims[v.Name])
			if err != nil {
				wrong = append(wrong, fmt.Errorf("volumes[%s]: %w", v.Name, err))
			}
			list = append(list, types.Volume{Name: &v.Name, EfsVolumeConfiguration: efs})
		}
	}
	return list, errdefs.AsPermanent(errors.Join(wrong...))
}

// fileSystem returns the file system of EFS that is a volume: by the handle of its driver,
// fs-1, fs-1:/path, fs-1::fsap-1 or fs-1:/path:fsap-1, or the name of its server.
func fileSystem(v *corev1.Volume, claimed *corev1.PersistentVolume) (*types.EFSVolumeConfiguration, error) {
	nfs := v.NFS
	if claimed != nil {
		if csi := claimed.Spec.CSI; csi != nil && csi.Driver == efsDriver {
			return efs(strings.Split(csi.VolumeHandle, ":"))
		}
		nfs = claimed.Spec.NFS
	}
	if nfs != nil {
		if id, rest, _ := strings.Cut(nfs.Server, "."); strings.HasPrefix(rest, "efs.") {
			return efs([]string{id, nfs.Path})
		}
	}
	return nil, errors.New("only file systems of EFS can be mounted, by the driver " + efsDriver + " or as nfs with the name of EFS")
}

func efs(handle []string) (*types.EFSVolumeConfiguration, error) {
	if !strings.HasPrefix(handle[0], "fs-") || len(handle) > 3 {
		return nil, fmt.Errorf("%q is not a file system of EFS", strings.Join(handle, ":"))
	}
	c := &types.EFSVolumeConfiguration{FileSystemId: &handle[0], TransitEncryption: types.EFSTransitEncryptionEnabled}
	if len(handle) > 1 && handle[1] != "" && path.Clean("/"+handle[1]) != "/" {
		c.RootDirectory = aws.String(path.Clean("/" + handle[1]))
	}
	if len(handle) == 3 && handle[2] != "" {
		if c.RootDirectory != nil {
			return nil, fmt.Errorf("access point %s has a directory of its own, and cannot be given %s", handle[2], *c.RootDirectory)
		}
		c.AuthorizationConfig = &types.EFSAuthorizationConfig{AccessPointId: &handle[2]}
	}
	return c, nil
}
