package eci

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// initContainer returns the parameters that containers of both kinds have.
func initContainer(pod *corev1.Pod, c *corev1.Container) object {
	needs := podgroup.SizeOf(&c.Resources)
	sc := podspec.SecurityContext(pod, c)
	o := object{
		"Name": c.Name, "Image": c.Image, "WorkingDir": c.WorkingDir, "ImagePullPolicy": c.ImagePullPolicy, "Command": c.Command, "Arg": c.Args,
		"TerminationMessagePolicy": c.TerminationMessagePolicy, "TerminationMessagePath": c.TerminationMessagePath, "Gpu": gpus(needs),
		"EnvironmentVar": each(c.Env, variable),
		"Port": each(c.Ports, func(port *corev1.ContainerPort) object {
			return object{"Port": port.ContainerPort, "Protocol": ptr.To(protocol(port))}
		}),
		"VolumeMount": each(c.VolumeMounts, func(m *corev1.VolumeMount) object {
			return object{"Name": m.Name, "MountPath": m.MountPath, "ReadOnly": &m.ReadOnly, "SubPath": m.SubPath, "MountPropagation": m.MountPropagation}
		}),
		"SecurityContext": object{
			"RunAsUser": sc.RunAsUser, "ReadOnlyRootFilesystem": ptr.Deref(sc.ReadOnlyRootFilesystem, false), // it has to be true, if it is there
			"Capability": object{"Add": ptr.Deref(sc.Capabilities, corev1.Capabilities{}).Add},
		},
	}
	maps.Copy(o, sizeOf(needs).parameters())
	return o
}

// container returns the parameters of a container that is no init container.
func container(pod *corev1.Pod, c *corev1.Container) object {
	sc := podspec.SecurityContext(pod, c)
	o := initContainer(pod, c)
	maps.Copy(o, object{
		"Stdin": c.Stdin, "StdinOnce": c.StdinOnce, "Tty": c.TTY,
		"EnvironmentVarHide": len(c.Env) > 0, // values of variables may be secret, and need not be shown in the console
		"ReadinessProbe":     probe(c, c.ReadinessProbe), "LivenessProbe": probe(c, c.LivenessProbe),
		"SecurityContextRunAsGroup":   sc.RunAsGroup,
		"SecurityContextRunAsNonRoot": sc.RunAsNonRoot,
		"SecurityContextPrivileged":   ptr.Deref(sc.Privileged, false),
	})
	if c.Lifecycle != nil {
		setHook(o, "LifecyclePostStartHandler", c, c.Lifecycle.PostStart)
		setHook(o, "LifecyclePreStopHandler", c, c.Lifecycle.PreStop)
	}
	return o
}

func protocol(port *corev1.ContainerPort) corev1.Protocol {
	if port.Protocol != "" {
		return port.Protocol
	}
	return corev1.ProtocolTCP
}

// gpus returns the number of GPUs of a size.
func gpus(s podgroup.Size) int64 {
	n := s.Other[resourceGPU]
	return n.Value()
}

// variable returns an environment variable. Variables are resolved, except for the addresses
// of the pod, which ECI knows.
func variable(e *corev1.EnvVar) object {
	o := object{"Key": e.Name, "Value": e.Value}
	if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
		path := e.ValueFrom.FieldRef.FieldPath
		if path == "status.podIPs" { // the API does not have it; the first IP is the same
			path = "status.podIP"
		}
		o["FieldRef.FieldPath"] = path
	}
	return o
}

// probe returns a probe. What is not set has the API's defaults, which are those of Kubernetes.
func probe(c *corev1.Container, p *corev1.Probe) object {
	if p == nil {
		return nil
	}
	o := object{
		"InitialDelaySeconds": &p.InitialDelaySeconds, "PeriodSeconds": p.PeriodSeconds, "TimeoutSeconds": p.TimeoutSeconds,
		"SuccessThreshold": p.SuccessThreshold, "FailureThreshold": p.FailureThreshold,
	}
	switch {
	case p.Exec != nil:
		o["Exec.Command"] = p.Exec.Command
	case p.HTTPGet != nil:
		o["HttpGet"] = object{"Path": p.HTTPGet.Path, "Scheme": p.HTTPGet.Scheme, "Port": podspec.PortNumber(c, p.HTTPGet.Port)}
	case p.TCPSocket != nil:
		o["TcpSocket.Port"] = podspec.PortNumber(c, p.TCPSocket.Port)
	}
	return o
}

// setHook sets a hook, whose parameters are not below one name.
func setHook(o object, prefix string, c *corev1.Container, h *corev1.LifecycleHandler) {
	switch {
	case h == nil:
	case h.Exec != nil:
		o[prefix+"Exec"] = h.Exec.Command
	case h.HTTPGet != nil:
		o[prefix+"HttpGetHost"], o[prefix+"HttpGetPath"] = h.HTTPGet.Host, h.HTTPGet.Path
		o[prefix+"HttpGetScheme"], o[prefix+"HttpGetPort"] = h.HTTPGet.Scheme, podspec.PortNumber(c, h.HTTPGet.Port)
		o[prefix+"HttpGetHttpHeader"] = each(h.HTTPGet.HTTPHeaders, func(header *corev1.HTTPHeader) object {
			return object{"Name": header.Name, "Value": header.Value}
		})
	case h.TCPSocket != nil:
		o[prefix+"TcpSocketHost"], o[prefix+"TcpSocketPort"] = h.TCPSocket.Host, podspec.PortNumber(c, h.TCPSocket.Port)
	}
}
