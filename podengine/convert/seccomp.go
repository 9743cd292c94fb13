package convert

import (
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccomp is the profile of a container (KEP-135), the node's default without one.
func (n Node) seccomp(p *corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		if n.SeccompDefault {
			return profile(runtimeapi.SecurityProfile_RuntimeDefault), nil
		}
		return profile(runtimeapi.SecurityProfile_Unconfined), nil
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return profile(runtimeapi.SecurityProfile_RuntimeDefault), nil
	case corev1.SeccompProfileTypeUnconfined:
		return profile(runtimeapi.SecurityProfile_Unconfined), nil
	case corev1.SeccompProfileTypeLocalhost:
		return n.localSeccomp(p.LocalhostProfile)
	default:
		return nil, fmt.Errorf("unknown seccompProfile type %q", p.Type)
	}
}

// localSeccomp is a profile on the node, which must be below the profiles' root.
func (n Node) localSeccomp(path *string) (*runtimeapi.SecurityProfile, error) {
	if path == nil || *path == "" {
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	if !filepath.IsLocal(*path) {
		return nil, fmt.Errorf("localhostProfile %q of seccompProfile is not below the directory of profiles", *path)
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(n.SeccompRoot, *path),
	}, nil
}

func profile(kind runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind}
}
