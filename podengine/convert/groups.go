package convert

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// supplementalGroups are the groups that processes are in besides their own.
func supplementalGroups(sc *corev1.PodSecurityContext) []int64 {
	if sc == nil {
		return nil
	}
	groups := slices.Clone(sc.SupplementalGroups)
	if sc.FSGroup != nil && !slices.Contains(groups, *sc.FSGroup) {
		groups = append(groups, *sc.FSGroup)
	}
	return groups
}

// supplementalGroupsPolicy says whether the groups of the image's /etc/group
// count too (KEP-3619).
func supplementalGroupsPolicy(sc *corev1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if sc == nil || sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	switch policy := *sc.SupplementalGroupsPolicy; policy {
	case corev1.SupplementalGroupsPolicyMerge:
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	case corev1.SupplementalGroupsPolicyStrict:
		return runtimeapi.SupplementalGroupsPolicy_Strict, nil
	default:
		return 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", policy)
	}
}
