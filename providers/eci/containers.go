package eci

import (
	"fmt"
	"strconv"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
)

func (r *CreateRequest) setContainers(pod *corev1.Pod) {
	var before []eci.CreateContainerGroupInitContainer
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		size := sizeOf(&c.Resources)
		before = append(before, eci.CreateContainerGroupInitContainer{
			Name: c.Name, Image: c.Image, Command: c.Command, Arg: c.Args, WorkingDir: c.WorkingDir,
			ImagePullPolicy: string(c.ImagePullPolicy), Cpu: unlessZero(size.cpu), Memory: unlessZero(size.memory), Gpu: gpus(c),
			EnvironmentVar: environment(c), Port: ports(c), VolumeMount: mounts(c),
		})
		prefix := fmt.Sprintf("InitContainer.%d.", i+1)
		r.secure(prefix, pod, c)
		r.terminationMessage(prefix, c)
	}
	if len(before) > 0 {
		r.InitContainer = &before
	}
	var containers []eci.CreateContainerGroupContainer
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		size := sizeOf(&c.Resources)
		made := eci.CreateContainerGroupContainer{
			Name: c.Name, Image: c.Image, Command: c.Command, Arg: c.Args, WorkingDir: c.WorkingDir,
			ImagePullPolicy: string(c.ImagePullPolicy), Cpu: unlessZero(size.cpu), Memory: unlessZero(size.memory), Gpu: gpus(c),
			EnvironmentVar: environment(c), Port: ports(c), VolumeMount: mounts(c),
			Stdin: ifTrue(c.Stdin), StdinOnce: ifTrue(c.StdinOnce), Tty: ifTrue(c.TTY),
		}
		prefix := fmt.Sprintf("Container.%d.", i+1)
		made.ReadinessProbe = eci.CreateContainerGroupReadinessProbe(r.probe(prefix+"ReadinessProbe.", c, c.ReadinessProbe))
		made.LivenessProbe = eci.CreateContainerGroupLivenessProbe(r.probe(prefix+"LivenessProbe.", c, c.LivenessProbe))
		if c.Lifecycle != nil {
			r.hook(prefix+"LifecyclePostStartHandler", c, c.Lifecycle.PostStart)
			r.hook(prefix+"LifecyclePreStopHandler", c, c.Lifecycle.PreStop)
		}
		r.secure(prefix, pod, c)
		r.terminationMessage(prefix, c)
		containers = append(containers, made)
	}
	r.Container = &containers
}

// environment has the values that are known by now: the controller has resolved
// them, but for the addresses of the pod, which ECI knows.
func environment(c *corev1.Container) *[]eci.CreateContainerGroupEnvironmentVar {
	var list []eci.CreateContainerGroupEnvironmentVar
	for i := range c.Env {
		e := eci.CreateContainerGroupEnvironmentVar{Key: c.Env[i].Name, Value: c.Env[i].Value}
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			e.FieldRef.FieldPath = from.FieldRef.FieldPath
			if e.FieldRef.FieldPath == "status.podIPs" { // which the API does not have; the first is the same
				e.FieldRef.FieldPath = "status.podIP"
			}
		}
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}

func ports(c *corev1.Container) *[]eci.CreateContainerGroupPort {
	var list []eci.CreateContainerGroupPort
	for i := range c.Ports {
		protocol := c.Ports[i].Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		list = append(list, eci.CreateContainerGroupPort{Port: integer(c.Ports[i].ContainerPort), Protocol: string(protocol)})
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}

func gpus(c *corev1.Container) requests.Integer {
	if n := larger(&c.Resources, resourceGPU).Value(); n > 0 {
		return integer(n)
	}
	return ""
}

// probe has all of a probe but its command, which goes to Extra: the SDK cannot
// send it.
func (r *CreateRequest) probe(prefix string, c *corev1.Container, p *corev1.Probe) (made eci.CreateContainerGroupReadinessProbe) {
	if p == nil {
		return made
	}
	made.InitialDelaySeconds = integer(p.InitialDelaySeconds)
	for to, value := range map[*requests.Integer]int32{
		&made.PeriodSeconds: p.PeriodSeconds, &made.TimeoutSeconds: p.TimeoutSeconds,
		&made.SuccessThreshold: p.SuccessThreshold, &made.FailureThreshold: p.FailureThreshold,
	} {
		if value != 0 { // else the API's default, which is Kubernetes'
			*to = integer(value)
		}
	}
	switch {
	case p.Exec != nil:
		r.list(prefix+"Exec.Command.", p.Exec.Command)
	case p.HTTPGet != nil:
		made.HttpGet = eci.CreateContainerGroupHttpGet{
			Path: p.HTTPGet.Path, Port: integer(portNumber(c, p.HTTPGet.Port)), Scheme: string(p.HTTPGet.Scheme),
		}
	case p.TCPSocket != nil:
		made.TcpSocket.Port = integer(portNumber(c, p.TCPSocket.Port))
	}
	return made
}

// hook sets the parameters of a handler of the lifecycle.
func (r *CreateRequest) hook(prefix string, c *corev1.Container, h *corev1.LifecycleHandler) {
	switch {
	case h == nil:
	case h.Exec != nil:
		r.list(prefix+"Exec.", h.Exec.Command)
	case h.HTTPGet != nil:
		r.some(map[string]string{
			prefix + "HttpGetHost": h.HTTPGet.Host, prefix + "HttpGetPath": h.HTTPGet.Path, prefix + "HttpGetScheme": string(h.HTTPGet.Scheme),
			prefix + "HttpGetPort": strconv.Itoa(int(portNumber(c, h.HTTPGet.Port))),
		})
		for i, header := range h.HTTPGet.HTTPHeaders {
			one := fmt.Sprintf("%sHttpGetHttpHeader.%d.", prefix, i+1)
			r.Extra[one+"Name"], r.Extra[one+"Value"] = header.Name, header.Value
		}
	case h.TCPSocket != nil:
		r.some(map[string]string{
			prefix + "TcpSocketHost": h.TCPSocket.Host, prefix + "TcpSocketPort": strconv.Itoa(int(portNumber(c, h.TCPSocket.Port))),
		})
	}
}

// secure sets what the security contexts of a container and its pod say. The SDK
// has only the sysctls of it.
func (r *CreateRequest) secure(prefix string, pod *corev1.Pod, c *corev1.Container) {
	prefix += "SecurityContext."
	if p := pod.Spec.SecurityContext; p != nil {
		if p.RunAsUser != nil {
			r.Extra[prefix+"RunAsUser"] = strconv.FormatInt(*p.RunAsUser, 10)
		}
		if p.RunAsGroup != nil {
			r.Extra[prefix+"RunAsGroup"] = strconv.FormatInt(*p.RunAsGroup, 10)
		}
	}
	s := c.SecurityContext
	if s == nil {
		return
	}
	if s.RunAsUser != nil {
		r.Extra[prefix+"RunAsUser"] = strconv.FormatInt(*s.RunAsUser, 10)
	}
	if s.RunAsGroup != nil {
		r.Extra[prefix+"RunAsGroup"] = strconv.FormatInt(*s.RunAsGroup, 10)
	}
	if s.ReadOnlyRootFilesystem != nil {
		r.Extra[prefix+"ReadOnlyRootFilesystem"] = strconv.FormatBool(*s.ReadOnlyRootFilesystem)
	}
	if s.Capabilities != nil {
		for i, added := range s.Capabilities.Add {
			r.Extra[fmt.Sprintf("%sCapability.Add.%d", prefix, i+1)] = string(added)
		}
	}
}

func (r *CreateRequest) terminationMessage(prefix string, c *corev1.Container) {
	r.some(map[string]string{
		prefix + "TerminationMessagePolicy": string(c.TerminationMessagePolicy), prefix + "TerminationMessagePath": c.TerminationMessagePath,
	})
}

func (r *CreateRequest) list(prefix string, values []string) {
	for i, value := range values {
		r.Extra[prefix+strconv.Itoa(i+1)] = value
	}
}

func (r *CreateRequest) some(params map[string]string) {
	for name, value := range params {
		if value != "" {
			r.Extra[name] = value
		}
	}
}

func unlessZero(f float64) requests.Float {
	if f == 0 {
		return ""
	}
	return number(f)
}

func ifTrue(b bool) requests.Boolean {
	if b {
		return boolean(b)
	}
	return ""
}
