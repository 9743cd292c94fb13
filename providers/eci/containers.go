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
		size := containerSize(&c.Resources)
		before = append(before, eci.CreateContainerGroupInitContainer{
			Name: c.Name, Image: c.Image, Command: c.Command, Arg: c.Args, WorkingDir: c.WorkingDir,
			ImagePullPolicy: string(c.ImagePullPolicy), Cpu: floatUnlessZero(size.cpu), Memory: floatUnlessZero(size.memory), Gpu: gpus(c),
			EnvironmentVar: environment(c), Port: ports(c), VolumeMount: mounts(c),
		})
		prefix := fmt.Sprintf("InitContainer.%d.", i+1)
		r.setSecurityContext(prefix, pod, c)
		r.setTerminationMessage(prefix, c)
	}
	if len(before) > 0 {
		r.InitContainer = &before
	}
	var containers []eci.CreateContainerGroupContainer
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		size := containerSize(&c.Resources)
		made := eci.CreateContainerGroupContainer{
			Name: c.Name, Image: c.Image, Command: c.Command, Arg: c.Args, WorkingDir: c.WorkingDir,
			ImagePullPolicy: string(c.ImagePullPolicy), Cpu: floatUnlessZero(size.cpu), Memory: floatUnlessZero(size.memory), Gpu: gpus(c),
			EnvironmentVar: environment(c), Port: ports(c), VolumeMount: mounts(c),
			Stdin: boolIfTrue(c.Stdin), StdinOnce: boolIfTrue(c.StdinOnce), Tty: boolIfTrue(c.TTY),
		}
		prefix := fmt.Sprintf("Container.%d.", i+1)
		made.ReadinessProbe = eci.CreateContainerGroupReadinessProbe(r.setProbe(prefix+"ReadinessProbe.", c, c.ReadinessProbe))
		made.LivenessProbe = eci.CreateContainerGroupLivenessProbe(r.setProbe(prefix+"LivenessProbe.", c, c.LivenessProbe))
		if c.Lifecycle != nil {
			r.setHook(prefix+"LifecyclePostStartHandler", c, c.Lifecycle.PostStart)
			r.setHook(prefix+"LifecyclePreStopHandler", c, c.Lifecycle.PreStop)
		}
		r.setSecurityContext(prefix, pod, c)
		r.setGroupID(prefix, pod, c)
		r.setTerminationMessage(prefix, c)
		containers = append(containers, made)
	}
	r.Container = &containers
}

// environment returns the environment variables of a container. The controller has
// resolved them, except for the addresses of the pod, which ECI knows.
func environment(c *corev1.Container) *[]eci.CreateContainerGroupEnvironmentVar {
	var list []eci.CreateContainerGroupEnvironmentVar
	for i := range c.Env {
		e := eci.CreateContainerGroupEnvironmentVar{Key: c.Env[i].Name, Value: c.Env[i].Value}
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			e.FieldRef.FieldPath = from.FieldRef.FieldPath
			if e.FieldRef.FieldPath == "status.podIPs" { // the API does not have it; the first IP is the same
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
	if n := requestOrLimit(&c.Resources, resourceGPU).Value(); n > 0 {
		return integer(n)
	}
	return ""
}

// setProbe returns a probe without its command, which goes to Extra: the SDK cannot
// send it.
func (r *CreateRequest) setProbe(prefix string, c *corev1.Container, p *corev1.Probe) (made eci.CreateContainerGroupReadinessProbe) {
	if p == nil {
		return made
	}
	made.InitialDelaySeconds = integer(p.InitialDelaySeconds)
	for to, value := range map[*requests.Integer]int32{
		&made.PeriodSeconds: p.PeriodSeconds, &made.TimeoutSeconds: p.TimeoutSeconds,
		&made.SuccessThreshold: p.SuccessThreshold, &made.FailureThreshold: p.FailureThreshold,
	} {
		if value != 0 { // otherwise the API's default applies, which is that of Kubernetes
			*to = integer(value)
		}
	}
	switch {
	case p.Exec != nil:
		r.setList(prefix+"Exec.Command.", p.Exec.Command)
	case p.HTTPGet != nil:
		made.HttpGet = eci.CreateContainerGroupHttpGet{
			Path: p.HTTPGet.Path, Port: integer(portNumber(c, p.HTTPGet.Port)), Scheme: string(p.HTTPGet.Scheme),
		}
	case p.TCPSocket != nil:
		made.TcpSocket.Port = integer(portNumber(c, p.TCPSocket.Port))
	}
	return made
}

// setHook sets the parameters of a lifecycle hook.
func (r *CreateRequest) setHook(prefix string, c *corev1.Container, h *corev1.LifecycleHandler) {
	switch {
	case h == nil:
	case h.Exec != nil:
		r.setList(prefix+"Exec.", h.Exec.Command)
	case h.HTTPGet != nil:
		r.setNonEmpty(map[string]string{
			prefix + "HttpGetHost": h.HTTPGet.Host, prefix + "HttpGetPath": h.HTTPGet.Path, prefix + "HttpGetScheme": string(h.HTTPGet.Scheme),
			prefix + "HttpGetPort": strconv.Itoa(int(portNumber(c, h.HTTPGet.Port))),
		})
		for i, header := range h.HTTPGet.HTTPHeaders {
			one := fmt.Sprintf("%sHttpGetHttpHeader.%d.", prefix, i+1)
			r.Extra[one+"Name"], r.Extra[one+"Value"] = header.Name, header.Value
		}
	case h.TCPSocket != nil:
		r.setNonEmpty(map[string]string{
			prefix + "TcpSocketHost": h.TCPSocket.Host, prefix + "TcpSocketPort": strconv.Itoa(int(portNumber(c, h.TCPSocket.Port))),
		})
	}
}

// setSecurityContext sets the parameters of the security contexts of a container and
// its pod. The SDK has fields for sysctls only.
func (r *CreateRequest) setSecurityContext(prefix string, pod *corev1.Pod, c *corev1.Container) {
	prefix += "SecurityContext."
	if p := pod.Spec.SecurityContext; p != nil {
		if p.RunAsUser != nil {
			r.Extra[prefix+"RunAsUser"] = strconv.FormatInt(*p.RunAsUser, 10)
		}
	}
	s := c.SecurityContext
	if s == nil {
		return
	}
	if s.RunAsUser != nil {
		r.Extra[prefix+"RunAsUser"] = strconv.FormatInt(*s.RunAsUser, 10)
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

// setGroupID sets the primary group of a container's processes. The API has no such
// parameter for init containers.
func (r *CreateRequest) setGroupID(prefix string, pod *corev1.Pod, c *corev1.Container) {
	id := (*int64)(nil)
	if p := pod.Spec.SecurityContext; p != nil {
		id = p.RunAsGroup
	}
	if s := c.SecurityContext; s != nil && s.RunAsGroup != nil {
		id = s.RunAsGroup
	}
	if id != nil {
		r.Extra[prefix+"SecurityContextRunAsGroup"] = strconv.FormatInt(*id, 10)
	}
}

func (r *CreateRequest) setTerminationMessage(prefix string, c *corev1.Container) {
	r.setNonEmpty(map[string]string{
		prefix + "TerminationMessagePolicy": string(c.TerminationMessagePolicy), prefix + "TerminationMessagePath": c.TerminationMessagePath,
	})
}

func (r *CreateRequest) setList(prefix string, values []string) {
	for i, value := range values {
		r.Extra[prefix+strconv.Itoa(i+1)] = value
	}
}

func (r *CreateRequest) setNonEmpty(params map[string]string) {
	for name, value := range params {
		if value != "" {
			r.Extra[name] = value
		}
	}
}

func floatUnlessZero(f float64) requests.Float {
	if f == 0 {
		return ""
	}
	return number(f)
}

func boolIfTrue(b bool) requests.Boolean {
	if b {
		return boolean(b)
	}
	return ""
}
