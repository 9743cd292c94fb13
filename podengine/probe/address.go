package probe

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// address returns where to connect to: host, or else the pod, at a port that
// may be one of the container's by name.
func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.IP
	}
	if host == "" { // an address without host would be this machine's
		return "", errors.New("the pod has no IP address yet")
	}
	number, err := portOf(t.Container, port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

func portOf(container *corev1.Container, port intstr.IntOrString) (int, error) {
	number := port.IntValue() // also of a name that is a number
	if port.Type == intstr.String {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
				break
			}
		}
		if number == 0 {
			return 0, fmt.Errorf("container %q has no port named %q: name one of its ports, or give a number", container.Name, port.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d: it has to be one of 1 to 65535", number)
	}
	return number, nil
}
