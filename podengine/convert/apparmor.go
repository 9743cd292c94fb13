package convert

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// appArmor is the AppArmor profile of a container, from the first of these that
// is there: its own field, the annotation that was there before the fields, the
// pod's field (KEP-24). nil leaves it to the runtime.
func appArmor(pod *corev1.Pod, c *corev1.Container) (*runtimeapi.SecurityProfile, error) {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return appArmorField(sc.AppArmorProfile)
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	if value := pod.Annotations[key]; value != "" {
		return appArmorAnnotation(value)
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return appArmorField(sc.AppArmorProfile)
	}
	return nil, nil
}

func appArmorField(p *corev1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return profile(runtimeapi.SecurityProfile_RuntimeDefault), nil
	case corev1.AppArmorProfileTypeUnconfined:
		return profile(runtimeapi.SecurityProfile_Unconfined), nil
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if appArmorProfile type is Localhost")
		}
		return localAppArmor(*p.LocalhostProfile), nil
	default:
		return nil, fmt.Errorf("unknown appArmorProfile type %q", p.Type)
	}
}

func appArmorAnnotation(value string) (*runtimeapi.SecurityProfile, error) {
	switch value {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return profile(runtimeapi.SecurityProfile_RuntimeDefault), nil
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return profile(runtimeapi.SecurityProfile_Unconfined), nil
	}
	name, ok := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok || name == "" {
		return nil, fmt.Errorf("invalid AppArmor profile name: %q", value)
	}
	return localAppArmor(name), nil
}

// localAppArmor is a profile that is loaded on the node, by its name.
func localAppArmor(name string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name}
}
