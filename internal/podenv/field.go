package podenv

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// field returns the value of a fieldRef, and whether it is known by now.
func (r *resolver) field(path string) (value string, known bool, err error) {
	switch path {
	case "spec.nodeName":
		return r.pod.Spec.NodeName, true, nil
	case "spec.serviceAccountName":
		return r.pod.Spec.ServiceAccountName, true, nil
	case "status.hostIP":
		return first(r.hostIPs())
	case "status.hostIPs":
		return all(r.hostIPs())
	case "status.podIP":
		return first(r.podIPs())
	case "status.podIPs":
		return all(r.podIPs())
	}
	if !strings.HasPrefix(path, "metadata.") {
		return "", false, fmt.Errorf("unsupported fieldPath %q", path)
	}
	value, err = metadata(r.pod, path)
	return value, true, err
}

func (r *resolver) hostIPs() []string {
	if ips := r.pod.Status.HostIPs; len(ips) > 0 {
		list := make([]string, len(ips))
		for i, ip := range ips {
			list[i] = ip.IP
		}
		return list
	}
	if ip := r.pod.Status.HostIP; ip != "" {
		return []string{ip}
	}
	return r.opts.HostIPs
}

func (r *resolver) podIPs() []string {
	if ips := r.pod.Status.PodIPs; len(ips) > 0 {
		return podIPList(ips)
	}
	if ip := r.pod.Status.PodIP; ip != "" {
		return []string{ip}
	}
	if r.pod.Spec.HostNetwork {
		return r.hostIPs()
	}
	return nil
}

func podIPList(ips []corev1.PodIP) []string {
	list := make([]string, len(ips))
	for i, ip := range ips {
		list[i] = ip.IP
	}
	return list
}

func first(ips []string) (string, bool, error) {
	if len(ips) == 0 {
		return "", false, nil
	}
	return ips[0], true, nil
}

func all(ips []string) (string, bool, error) {
	return strings.Join(ips, ","), len(ips) > 0, nil
}
