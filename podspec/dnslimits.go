package podspec

import "strings"

// What a pod's resolv.conf may have. See "DNS search domain list limits" and "Pod's
// DNS Config" in https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchLine  = 2048 // characters, with the spaces between
)

// limited leaves out of a resolv.conf what is beyond the limits, in the order of
// the lists, and warns about it in the kubelet's words.
func limited(conf ResolvConf) (ResolvConf, []Warning) {
	var warnings []Warning
	if servers := conf.Nameservers; len(servers) > maxNameservers {
		conf.Nameservers = servers[:maxNameservers]
		warnings = append(warnings, Warning{ReasonDNSConfigForming,
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(conf.Nameservers, " ")})
	}
	if fit := fittingSearches(conf.Searches); fit < len(conf.Searches) {
		conf.Searches = conf.Searches[:fit]
		warnings = append(warnings, Warning{ReasonDNSConfigForming,
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(conf.Searches, " ")})
	}
	return conf, warnings
}

// fittingSearches is how many of the search paths are within the limits.
func fittingSearches(searches []string) int {
	length := 0
	for i, domain := range searches {
		if i > 0 {
			length++ // the space before it
		}
		length += len(domain)
		if i == maxSearches || length > maxSearchLine {
			return i
		}
	}
	return len(searches)
}
