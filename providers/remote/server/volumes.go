package server

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// capabilityVolumes is that of a provider which is a VolumeTaker.
const capabilityVolumes = "volumes"

// VolumeTaker is what a provider implements to be given what is in pods' volumes of the kinds
// configMap, secret, downwardAPI and projected, tokens included, by the volumes' names. The
// virtual kubelet reads it from the API server, and keeps it fresh. (volume.Write writes it to
// a directory.)
//
// One that has the method TakesVolumes() bool, too, is one if that returns true, such as a pod engine
// for whose node Sent is set (package machine).
//
// One that has the method TakesPullSecrets() bool, and returns true, is given the pod's image pull
// secrets as well: as volumes named imagePullSecrets/NAME, whose files are the data of the Secret.
//
// Calls for one pod do not overlap. Files may be Secrets: they belong in no log and no error.
type VolumeTaker interface {
	// CreatePodWithVolumes is called in place of CreatePod.
	CreatePodWithVolumes(ctx context.Context, pod *corev1.Pod, volumes map[string]volume.Files) error
	// UpdateVolumes replaces all files of the volumes that are given, and leaves the others as
	// they are. They may be what they were. An error is tried again, but for one of class
	// NotFound: the pod is not held.
	UpdateVolumes(ctx context.Context, namespace, name string, uid types.UID, volumes map[string]volume.Files) error
}

// capabilityPullSecrets is that of a VolumeTaker which is given image pull secrets.
const capabilityPullSecrets = "pull-secrets"

// takesPullSecrets reports whether a VolumeTaker is given image pull secrets.
func takesPullSecrets(taker VolumeTaker) bool {
	puller, ok := taker.(interface{ TakesPullSecrets() bool })
	return ok && puller.TakesPullSecrets()
}

// takerOf returns the VolumeTaker that a provider is, or nil.
func takerOf(provider any) VolumeTaker {
	taker, ok := provider.(VolumeTaker)
	if choosy, is := provider.(interface{ TakesVolumes() bool }); !ok || is && !choosy.TakesVolumes() {
		return nil
	}
	return taker
}

// creation returns what creates a pod.
func (s *Server) creation(pod *corev1.Pod, in []*pb.Volume) (func(context.Context, *corev1.Pod) error, error) {
	if s.taker == nil {
		return s.provider.CreatePod, nil
	}
	volumes, err := wire.ToFiles(in)
	if err != nil {
		return nil, err
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; volume.HasContents(v) && volumes[v.Name] == nil {
			return nil, errdefs.InvalidInputf("the virtual kubelet has not sent what is in volume %q: restart it, or use one that does", v.Name)
		}
	}
	return func(ctx context.Context, pod *corev1.Pod) error {
		return s.taker.CreatePodWithVolumes(ctx, pod, volumes)
	}, nil
}

// UpdateVolumes implements the protocol.
func (s *Server) UpdateVolumes(ctx context.Context, in *pb.UpdateVolumesRequest) (*pb.UpdateVolumesResponse, error) {
	return &pb.UpdateVolumesResponse{}, wire.ToStatus(s.updateVolumes(ctx, in.GetPod(), in.GetVolumes()))
}

func (s *Server) updateVolumes(ctx context.Context, pod *pb.PodRef, in []*pb.Volume) error {
	if s.taker == nil {
		return fmt.Errorf("this provider takes no volumes: %w", errors.ErrUnsupported)
	}
	volumes, err := wire.ToFiles(in)
	if err != nil {
		return err
	}
	done, err := s.turn(ctx, pod.GetNamespace(), pod.GetName())
	if err != nil {
		return err
	}
	defer done()
	return s.taker.UpdateVolumes(ctx, pod.GetNamespace(), pod.GetName(), types.UID(pod.GetUid()), volumes)
}
