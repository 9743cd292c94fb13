package podenv

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// masterService is the service whose variables every pod gets.
const masterService = "kubernetes"

// serviceVariables returns the variables of the services that the pod sees, in
// the order of their names, those of the master service first.
func (r *resolver) serviceVariables() []corev1.EnvVar {
	var selected []*corev1.Service
	links := r.pod.Spec.EnableServiceLinks == nil || *r.pod.Spec.EnableServiceLinks
	if links {
		selected = r.services(r.pod.Namespace, func(*corev1.Service) bool { return true })
	}
	isMaster := func(s *corev1.Service) bool { return s.Name == masterService }
	// A service of that name in the pod's own namespace hides the master's.
	if !slices.ContainsFunc(selected, isMaster) && !(links && r.pod.Namespace == r.opts.MasterServiceNamespace) {
		selected = append(selected, r.services(r.opts.MasterServiceNamespace, isMaster)...)
	}
	slices.SortFunc(selected, func(a, b *corev1.Service) int {
		if isMaster(a) != isMaster(b) {
			if isMaster(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	var vars []corev1.EnvVar
	for _, s := range selected {
		vars = appendServiceVariables(vars, s)
	}
	return vars
}

// services returns those services of a namespace that want wants and that have
// an IP.
func (r *resolver) services(namespace string, want func(*corev1.Service) bool) []*corev1.Service {
	all, err := r.src.Services(namespace)
	if err != nil {
		r.report(Problem{
			Reason:  ReasonFailedToReadServices,
			Message: fmt.Sprintf("failed to read the services of namespace %q: %v", namespace, err),
			Fatal:   true,
			Object:  Object{"Namespace", "", namespace},
		}, err)
		return nil
	}
	var selected []*corev1.Service
	for _, s := range all {
		if s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && want(s) {
			selected = append(selected, s)
		}
	}
	return selected
}

// appendServiceVariables appends the variables of one service: {SVC}_SERVICE_*
// and those that Docker's container links had.
func appendServiceVariables(vars []corev1.EnvVar, s *corev1.Service) []corev1.EnvVar {
	name, host := variableName(s.Name), s.Spec.ClusterIP
	set := func(suffix, value string) {
		vars = append(vars, corev1.EnvVar{Name: name + suffix, Value: value})
	}
	set("_SERVICE_HOST", host)
	if len(s.Spec.Ports) > 0 {
		set("_SERVICE_PORT", portNumber(s.Spec.Ports[0]))
	}
	for _, port := range s.Spec.Ports {
		if port.Name != "" {
			set("_SERVICE_PORT_"+variableName(port.Name), portNumber(port))
		}
	}
	for i, port := range s.Spec.Ports {
		number := portNumber(port)
		protocol := string(cmp.Or(port.Protocol, corev1.ProtocolTCP))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(host, number)
		if i == 0 {
			set("_PORT", url)
		}
		prefix := "_PORT_" + number + "_" + strings.ToUpper(protocol)
		set(prefix, url)
		set(prefix+"_PROTO", strings.ToLower(protocol))
		set(prefix+"_PORT", number)
		set(prefix+"_ADDR", host)
	}
	return vars
}

func portNumber(p corev1.ServicePort) string { return strconv.Itoa(int(p.Port)) }

// variableName makes the name of a service or port one of a variable.
func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
