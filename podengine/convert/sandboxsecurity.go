package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxSecurity is the security context of the sandbox itself, which is not
// that of the containers in it. Its root file system is the runtime's affair.
func sandboxSecurity(pod *corev1.Pod, users *runtimeapi.UserNamespace) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	namespaces, err := podNamespaces(pod, users)
	if err != nil {
		return nil, err
	}
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces,
		Privileged:       hasPrivileged(pod),
		// The sandbox's process is the same for all pods, and needs no more than
		// the runtime allows by default: profiles are for the containers.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return security, nil
	}
	security.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	security.RunAsUser = int64Value(sc.RunAsUser)
	if sc.RunAsUser != nil { // the CRI takes a group only with a user
		security.RunAsGroup = int64Value(sc.RunAsGroup)
	}
	security.SupplementalGroups = supplementalGroups(sc)
	security.SupplementalGroupsPolicy, err = supplementalGroupsPolicy(sc)
	return security, err
}

// hasPrivileged reports whether any container, of any kind, is privileged.
// Ephemeral ones that come later cannot be, if none was when the sandbox started:
// runtimes refuse them.
func hasPrivileged(pod *corev1.Pod) bool {
	for c := range containers(pod) {
		if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
			return true
		}
	}
	return false
}

func int64Value(value *int64) *runtimeapi.Int64Value {
	if value == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *value}
}
