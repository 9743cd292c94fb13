package convert

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podNamespaces are the namespaces that a pod asks for. users are the mappings
// for a user namespace of the pod's own.
func podNamespaces(pod *corev1.Pod, users *runtimeapi.UserNamespace) (*runtimeapi.NamespaceOption, error) {
	userns, err := userNamespace(pod, users)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.NamespaceOption{
		Network:       nodeOrPod(pod.Spec.HostNetwork),
		Ipc:           nodeOrPod(pod.Spec.HostIPC),
		Pid:           pidMode(pod),
		UsernsOptions: userns,
	}, nil
}

// containerNamespaces are those of the pod, but that an ephemeral container may
// join the processes of another one (KEP-277): of no use where all are shared.
func containerNamespaces(pod *corev1.Pod, o ContainerOptions) (*runtimeapi.NamespaceOption, error) {
	namespaces, err := podNamespaces(pod, o.UserNamespace)
	if err != nil {
		return nil, err
	}
	if o.TargetID != "" && namespaces.Pid == runtimeapi.NamespaceMode_CONTAINER {
		namespaces.Pid = runtimeapi.NamespaceMode_TARGET
		namespaces.TargetId = o.TargetID
	}
	return namespaces, nil
}

func nodeOrPod(node bool) runtimeapi.NamespaceMode {
	if node {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}

func pidMode(pod *corev1.Pod) runtimeapi.NamespaceMode {
	switch {
	case pod.Spec.HostPID:
		return runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		return runtimeapi.NamespaceMode_POD
	default:
		return runtimeapi.NamespaceMode_CONTAINER
	}
}

var (
	errNoUserNamespace = errors.New("the pod has hostUsers: false, but user namespaces are not supported on this node")
	errNoMapping       = errors.New("the pod has hostUsers: false, but its user namespace maps no users or no groups")
)

// userNamespace follows spec.hostUsers (KEP-127). Runtimes that know no user
// namespaces know neither the mode: without the field none is set.
func userNamespace(pod *corev1.Pod, users *runtimeapi.UserNamespace) (*runtimeapi.UserNamespace, error) {
	switch host := pod.Spec.HostUsers; {
	case host == nil:
		return nil, nil
	case *host:
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	case users == nil:
		return nil, errNoUserNamespace
	case len(users.Uids) == 0 || len(users.Gids) == 0:
		return nil, errNoMapping
	default:
		return users, nil
	}
}
