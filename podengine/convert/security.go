package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

func (n Node) containerSecurity(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := podspec.SecurityContext(pod, c)
	user := imageUser(o.Image)
	if err := checkNonRoot(pod, c, sc, user); err != nil {
		return nil, err
	}
	security := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:       capabilities(sc.Capabilities),
		Privileged:         isTrue(sc.Privileged),
		SelinuxOptions:     selinuxOptions(sc.SELinuxOptions),
		ReadonlyRootfs:     isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:         sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		SupplementalGroups: supplementalGroups(pod.Spec.SecurityContext),
		RunAsGroup:         int64Value(sc.RunAsGroup),
	}
	setUser(security, sc, user)
	setProcMount(security, sc.ProcMount)
	return security, n.setProfiles(security, pod, c, sc, o)
}

// setProfiles sets what can be wrong.
func (n Node) setProfiles(security *runtimeapi.LinuxContainerSecurityContext, pod *corev1.Pod, c *corev1.Container, sc corev1.SecurityContext, o ContainerOptions) (err error) {
	if security.NamespaceOptions, err = containerNamespaces(pod, o); err != nil {
		return err
	}
	if security.SupplementalGroupsPolicy, err = supplementalGroupsPolicy(pod.Spec.SecurityContext); err != nil {
		return err
	}
	if security.Seccomp, err = n.seccomp(sc.SeccompProfile); err != nil {
		return err
	}
	security.Apparmor, err = appArmor(pod, c)
	return err
}

func isTrue(b *bool) bool { return b != nil && *b }

// capabilities are named as in the API, without CAP_; ALL stands for all of them.
func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

func names(capabilities []corev1.Capability) []string {
	list := make([]string, len(capabilities))
	for i, c := range capabilities {
		list[i] = string(c)
	}
	return list
}

func selinuxOptions(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
