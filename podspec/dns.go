package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the warnings that DNS gives.
const (
	ReasonDNSConfigForming  = "DNSConfigForming"
	ReasonMissingClusterDNS = "MissingClusterDNS"
)

// Warning is something that a person must know, for others to make an event of.
type Warning struct{ Reason, Message string }

// DNS is what a node knows of name resolution.
type DNS struct {
	// ClusterServers are the addresses of the cluster's DNS service. Without
	// them pods use what the host uses.
	ClusterServers []string
	// ClusterDomain is the domain of the cluster, such as cluster.local; without
	// it pods search the domains of the host only.
	ClusterDomain string
	// Host is what the host uses: see ParseResolvConf.
	Host ResolvConf
}

// ForPod is the resolv.conf of a pod by its dnsPolicy and dnsConfig, within the
// limits of what resolvers take.
//
// See https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.
func (d DNS) ForPod(pod *corev1.Pod) (ResolvConf, []Warning) {
	conf, warnings := d.byPolicy(pod)
	conf = withDNSConfig(conf, pod.Spec.DNSConfig)
	conf, more := limited(conf)
	return conf, append(warnings, more...)
}

func (d DNS) byPolicy(pod *corev1.Pod) (ResolvConf, []Warning) {
	switch policy := effectiveDNSPolicy(pod); {
	case policy == corev1.DNSNone:
		return ResolvConf{}, nil
	case policy == corev1.DNSDefault:
		return d.Host, nil
	case len(d.ClusterServers) == 0:
		return d.Host, []Warning{{ReasonMissingClusterDNS, fmt.Sprintf(
			"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			PodName(pod), policy, corev1.DNSDefault)}}
	default:
		return d.clusterFirst(pod), nil
	}
}

// effectiveDNSPolicy: ClusterFirst, which is the default, means the host's
// resolv.conf for pods on the host's network.
func effectiveDNSPolicy(pod *corev1.Pod) corev1.DNSPolicy {
	switch policy := pod.Spec.DNSPolicy; {
	case policy == corev1.DNSNone, policy == corev1.DNSDefault, policy == corev1.DNSClusterFirstWithHostNet:
		return policy
	case pod.Spec.HostNetwork:
		return corev1.DNSDefault
	default:
		return corev1.DNSClusterFirst
	}
}

// clusterFirst asks the cluster's servers only: they forward what they do not know.
func (d DNS) clusterFirst(pod *corev1.Pod) ResolvConf {
	var searches []string
	if d.ClusterDomain != "" {
		services := "svc." + d.ClusterDomain
		searches = []string{pod.Namespace + "." + services, services, d.ClusterDomain}
	}
	return ResolvConf{
		Nameservers: d.ClusterServers,
		Searches:    unique(searches, d.Host.Searches),
		// Names with less dots than those of services are searched for first.
		Options: []string{"ndots:5"},
	}
}

// withDNSConfig adds spec.dnsConfig to what the policy says.
func withDNSConfig(conf ResolvConf, add *corev1.PodDNSConfig) ResolvConf {
	if add == nil {
		add = &corev1.PodDNSConfig{} // what follows also copies the lists, which are the node's
	}
	options := make([]string, len(add.Options))
	for i, option := range add.Options {
		options[i] = option.Name
		if option.Value != nil && *option.Value != "" {
			options[i] += ":" + *option.Value
		}
	}
	return ResolvConf{
		Nameservers: unique(conf.Nameservers, add.Nameservers),
		Searches:    unique(conf.Searches, add.Searches),
		Options:     mergeOptions(conf.Options, options),
	}
}

// unique is the elements of both lists, each once.
func unique(first, second []string) (all []string) {
	for _, s := range slices.Concat(first, second) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
