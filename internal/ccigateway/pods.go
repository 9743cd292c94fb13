package ccigateway

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// flavors are the pods of CCI 2.0: CPUs, and GiB of memory from, to and step; or those that
// are listed.
var flavors = map[string][]string{
	"0.25": {"0.5", "1.0", "2.0"}, "0.50": {"0.5", "1.0", "2.0", "3.0", "4.0"},
	"1.00": upTo(1, 8, 1), "2.00": upTo(2, 16, 1), "4.00": upTo(4, 32, 1), "8.00": upTo(8, 64, 4), "16.00": upTo(16, 128, 8),
	"32.00": {"32.0", "64.0", "128.0", "256.0"}, "48.00": {"96.0", "192.0", "384.0"}, "64.00": {"128.0", "256.0", "512.0"},
}

func upTo(from, to, step int) (all []string) {
	for gib := from; gib <= to; gib += step {
		all = append(all, fmt.Sprintf("%d.0", gib))
	}
	return all
}

// checkPod refuses a pod that the service does not have.
func (g *Gateway) checkPod(namespace string, body []byte) *failure {
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return invalid(err.Error())
	}
	if len(g.Networks(namespace)) == 0 {
		return forbidden("namespace " + namespace + " has no network")
	}
	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
		return invalid("the namespaces of hosts are not supported")
	}
	var milliCPU, mebibytes int64
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
				return invalid("privileged containers are not supported")
			}
			if c.RestartPolicy != nil {
				return invalid("unknown field restartPolicy of container " + c.Name)
			}
			if f := g.checkContainer(&c); f != nil {
				return f
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		milliCPU += c.Resources.Limits.Cpu().MilliValue()
		mebibytes += c.Resources.Limits.Memory().Value() >> 20
	}
	if !g.V2 {
		switch {
		case len(pod.Spec.Containers) > 5:
			return invalid("more than 5 containers")
		case mebibytes%1024 != 0 || mebibytes > 512<<10:
			return invalid(fmt.Sprintf("the memory of the pod is %d MiB, no whole number of GiB up to 512", mebibytes))
		case mebibytes*1000 < milliCPU*2*1024 || mebibytes*1000 > milliCPU*8*1024:
			return invalid(fmt.Sprintf("%d thousandths of a CPU and %d MiB: the ratio is not between 1:2 and 1:8", milliCPU, mebibytes))
		case milliCPU > 32000 && milliCPU != 48000 && milliCPU != 64000:
			return invalid(fmt.Sprintf("no pod has %d thousandths of a CPU", milliCPU))
		}
		return nil
	}
	return checkFlavor(pod.Annotations["resource.cci.io/pod-size-specs"], milliCPU, mebibytes)
}

// checkContainer checks a container of CCI 1.
func (g *Gateway) checkContainer(c *corev1.Container) *failure {
	limits, requests := c.Resources.Limits, c.Resources.Requests
	switch {
	case g.V2:
		return nil
	case limits.Cpu().Cmp(*requests.Cpu()) != 0 || limits.Memory().Cmp(*requests.Memory()) != 0:
		return invalid("the requests of container " + c.Name + " are not its limits")
	case limits.Cpu().MilliValue() == 0 || limits.Cpu().MilliValue()%250 != 0:
		return invalid("the CPU of container " + c.Name + " is no multiple of 0.25")
	case limits.Memory().Value() < 200<<20:
		return invalid("container " + c.Name + " has less than 0.2 GB of memory")
	}
	return nil
}

// checkFlavor checks the size of a pod of CCI 2.0.
func checkFlavor(text string, milliCPU, mebibytes int64) *failure {
	for cpu, memory := range flavors {
		for _, gib := range memory {
			if cpu+"_"+gib != text {
				continue
			}
			cpus, _ := strconv.ParseFloat(cpu, 64) // those of flavors
			gibibytes, _ := strconv.ParseFloat(gib, 64)
			if float64(milliCPU) > cpus*1000 || float64(mebibytes) > gibibytes*1024 {
				return invalid("the containers need more than " + text)
			}
			return nil
		}
	}
	return invalid(fmt.Sprintf("no pod has the size %q", text))
}
