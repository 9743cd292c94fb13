package eci

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func (p params) setContainers(pod *corev1.Pod) {
	for i := range pod.Spec.InitContainers {
		p.setContainer(fmt.Sprintf("InitContainer.%d.", i+1), pod, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		prefix := fmt.Sprintf("Container.%d.", i+1)
		p.setContainer(prefix, pod, c)
		for name, set := range map[string]bool{"Stdin": c.Stdin, "StdinOnce": c.StdinOnce, "Tty": c.TTY, "EnvironmentVarHide": len(c.Env) > 0} {
			if set { // values of variables may be secret, and need not be shown in the console
				p[prefix+name] = "true"
			}
		}
		p.setProbe(prefix+"ReadinessProbe.", c, c.ReadinessProbe)
		p.setProbe(prefix+"LivenessProbe.", c, c.LivenessProbe)
		if c.Lifecycle != nil {
			p.setHook(prefix+"LifecyclePostStartHandler", c, c.Lifecycle.PostStart)
			p.setHook(prefix+"LifecyclePreStopHandler", c, c.Lifecycle.PreStop)
		}
		p.setFurtherSecurity(prefix+"SecurityContext", pod, c)
	}
}

// setContainer sets what containers of both kinds have.
func (p params) setContainer(prefix string, pod *corev1.Pod, c *corev1.Container) {
	for name, value := range map[string]string{
		"Name": c.Name, "Image": c.Image, "WorkingDir": c.WorkingDir, "ImagePullPolicy": string(c.ImagePullPolicy),
		"TerminationMessagePolicy": string(c.TerminationMessagePolicy), "TerminationMessagePath": c.TerminationMessagePath,
	} {
		p.set(prefix+name, value)
	}
	p.setList(prefix+"Command", c.Command)
	p.setList(prefix+"Arg", c.Args)
	needs := podgroup.SizeOf(&c.Resources)
	p.setOf(prefix, sizeOf(needs))
	if n := gpus(needs); n > 0 {
		p[prefix+"Gpu"] = strconv.FormatInt(n, 10)
	}
	p.setEnvironment(prefix, c)
	for i := range c.Ports {
		port := fmt.Sprintf("%sPort.%d.", prefix, i+1)
		p[port+"Port"], p[port+"Protocol"] = strconv.Itoa(int(c.Ports[i].ContainerPort)), string(corev1.ProtocolTCP)
		p.set(port+"Protocol", string(c.Ports[i].Protocol))
	}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		mount := fmt.Sprintf("%sVolumeMount.%d.", prefix, i+1)
		p[mount+"Name"], p[mount+"MountPath"], p[mount+"ReadOnly"] = m.Name, m.MountPath, strconv.FormatBool(m.ReadOnly)
		p.set(mount+"SubPath", m.SubPath)
		if m.MountPropagation != nil {
			p[mount+"MountPropagation"] = string(*m.MountPropagation)
		}
	}
	p.setSecurity(prefix+"SecurityContext.", pod, c)
}

// gpus returns the number of GPUs of a size.
func gpus(s podgroup.Size) int64 {
	n := s.Other[resourceGPU]
	return n.Value()
}

// setEnvironment sets the environment variables of a container. They are resolved, except
// for the addresses of the pod, which ECI knows.
func (p params) setEnvironment(prefix string, c *corev1.Container) {
	for i := range c.Env {
		variable := fmt.Sprintf("%sEnvironmentVar.%d.", prefix, i+1)
		p[variable+"Key"] = c.Env[i].Name
		p.set(variable+"Value", c.Env[i].Value)
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			path := from.FieldRef.FieldPath
			if path == "status.podIPs" { // the API does not have it; the first IP is the same
				path = "status.podIP"
			}
			p[variable+"FieldRef.FieldPath"] = path
		}
	}
}

func (p params) setProbe(prefix string, c *corev1.Container, probe *corev1.Probe) {
	if probe == nil {
		return
	}
	p[prefix+"InitialDelaySeconds"] = strconv.Itoa(int(probe.InitialDelaySeconds))
	for name, value := range map[string]int32{
		"PeriodSeconds": probe.PeriodSeconds, "TimeoutSeconds": probe.TimeoutSeconds,
		"SuccessThreshold": probe.SuccessThreshold, "FailureThreshold": probe.FailureThreshold,
	} {
		if value != 0 { // otherwise the API's default applies, which is that of Kubernetes
			p[prefix+name] = strconv.Itoa(int(value))
		}
	}
	switch {
	case probe.Exec != nil:
		p.setList(prefix+"Exec.Command", probe.Exec.Command)
	case probe.HTTPGet != nil:
		p.set(prefix+"HttpGet.Path", probe.HTTPGet.Path)
		p.set(prefix+"HttpGet.Scheme", string(probe.HTTPGet.Scheme))
		p[prefix+"HttpGet.Port"] = strconv.Itoa(int(portNumber(c, probe.HTTPGet.Port)))
	case probe.TCPSocket != nil:
		p[prefix+"TcpSocket.Port"] = strconv.Itoa(int(portNumber(c, probe.TCPSocket.Port)))
	}
}

func (p params) setHook(prefix string, c *corev1.Container, h *corev1.LifecycleHandler) {
	switch {
	case h == nil:
	case h.Exec != nil:
		p.setList(prefix+"Exec", h.Exec.Command)
	case h.HTTPGet != nil:
		p.set(prefix+"HttpGetHost", h.HTTPGet.Host)
		p.set(prefix+"HttpGetPath", h.HTTPGet.Path)
		p.set(prefix+"HttpGetScheme", string(h.HTTPGet.Scheme))
		p[prefix+"HttpGetPort"] = strconv.Itoa(int(portNumber(c, h.HTTPGet.Port)))
		for i, header := range h.HTTPGet.HTTPHeaders {
			one := fmt.Sprintf("%sHttpGetHttpHeader.%d.", prefix, i+1)
			p[one+"Name"], p[one+"Value"] = header.Name, header.Value
		}
	case h.TCPSocket != nil:
		p.set(prefix+"TcpSocketHost", h.TCPSocket.Host)
		p[prefix+"TcpSocketPort"] = strconv.Itoa(int(portNumber(c, h.TCPSocket.Port)))
	}
}

// setSecurity sets what containers of both kinds have of a security context, and of that
// of their pod.
func (p params) setSecurity(prefix string, pod *corev1.Pod, c *corev1.Container) {
	if of := pod.Spec.SecurityContext; of != nil && of.RunAsUser != nil {
		p[prefix+"RunAsUser"] = strconv.FormatInt(*of.RunAsUser, 10)
	}
	s := c.SecurityContext
	if s == nil {
		return
	}
	if s.RunAsUser != nil {
		p[prefix+"RunAsUser"] = strconv.FormatInt(*s.RunAsUser, 10)
	}
	if s.ReadOnlyRootFilesystem != nil {
		p[prefix+"ReadOnlyRootFilesystem"] = strconv.FormatBool(*s.ReadOnlyRootFilesystem)
	}
	if s.Capabilities != nil {
		var added []string
		for _, capability := range s.Capabilities.Add {
			added = append(added, string(capability))
		}
		p.setList(prefix+"Capability.Add", slices.Compact(added))
	}
}

// setFurtherSecurity sets what init containers have no parameters for.
func (p params) setFurtherSecurity(prefix string, pod *corev1.Pod, c *corev1.Container) {
	var group *int64
	var nonRoot, privileged *bool
	if of := pod.Spec.SecurityContext; of != nil {
		group, nonRoot = of.RunAsGroup, of.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil {
		if privileged = s.Privileged; s.RunAsGroup != nil {
			group = s.RunAsGroup
		}
		if s.RunAsNonRoot != nil {
			nonRoot = s.RunAsNonRoot
		}
	}
	if group != nil {
		p[prefix+"RunAsGroup"] = strconv.FormatInt(*group, 10)
	}
	if nonRoot != nil {
		p[prefix+"RunAsNonRoot"] = strconv.FormatBool(*nonRoot)
	}
	if privileged != nil && *privileged {
		p[prefix+"Privileged"] = "true"
	}
}
