package podspec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testDNS = DNS{
	ClusterServers: []string{"10.96.0.10"},
	ClusterDomain:  "cluster.local",
	Host:           ResolvConf{[]string{"192.0.2.1"}, []string{"example.com"}, []string{"rotate"}},
}

// The policies of https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.
func TestDNSPolicies(t *testing.T) {
	cluster := ResolvConf{
		[]string{"10.96.0.10"},
		[]string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"},
		[]string{"ndots:5"},
	}
	config := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.9", "10.96.0.10"},
		Searches:    []string{"mine.example", "example.com"},
		Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}, {Name: "rotate", Value: new("")}},
	}
	for _, test := range []struct {
		what string
		spec corev1.PodSpec
		dns  func(*DNS)
		want ResolvConf
		warn string
	}{
		{what: "ClusterFirst", spec: corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, want: cluster},
		{what: "ClusterFirst is the default", want: cluster},
		{what: "an unknown policy is the default", spec: corev1.PodSpec{DNSPolicy: "Other"}, want: cluster},
		{what: "ClusterFirst on the host's network is Default",
			spec: corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, want: testDNS.Host},
		{what: "ClusterFirstWithHostNet on the host's network",
			spec: corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, want: cluster},
		{what: "ClusterFirstWithHostNet without it",
			spec: corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet}, want: cluster},
		{what: "Default", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, want: testDNS.Host},
		{what: "None", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, want: ResolvConf{}},
		{what: "None with dnsConfig", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: config},
			want: ResolvConf{[]string{"192.0.2.9", "10.96.0.10"}, []string{"mine.example", "example.com"}, []string{"ndots:2", "edns0", "rotate"}}},
		{what: "dnsConfig adds, once, and replaces options", spec: corev1.PodSpec{DNSConfig: config},
			want: ResolvConf{
				[]string{"10.96.0.10", "192.0.2.9"},
				[]string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "mine.example"},
				[]string{"ndots:2", "edns0", "rotate"},
			}},
		{what: "Default with dnsConfig", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault, DNSConfig: config},
			want: ResolvConf{[]string{"192.0.2.1", "192.0.2.9", "10.96.0.10"}, []string{"example.com", "mine.example"}, []string{"rotate", "ndots:2", "edns0"}}},
		{what: "no cluster domain", dns: func(d *DNS) { d.ClusterDomain = "" },
			want: ResolvConf{[]string{"10.96.0.10"}, []string{"example.com"}, []string{"ndots:5"}}},
		{what: "no cluster DNS", dns: func(d *DNS) { d.ClusterServers = nil }, want: testDNS.Host,
			warn: `MissingClusterDNS: pod: "p_ns(u)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`},
		{what: "no cluster DNS, and no need of it", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault},
			dns: func(d *DNS) { d.ClusterServers = nil }, want: testDNS.Host},
	} {
		t.Run(test.what, func(t *testing.T) {
			dns := testDNS
			if test.dns != nil {
				test.dns(&dns)
			}
			got, warnings := dns.ForPod(dnsPod(test.spec))
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if text := warned(warnings); text != test.warn {
				t.Errorf("warned %q, want %q", text, test.warn)
			}
		})
	}
}

func TestDNSLimits(t *testing.T) {
	domains := func(count, length int) []string {
		list := make([]string, count)
		for i := range list {
			list[i] = fmt.Sprintf("%0*d", length, i)
		}
		return list
	}
	for _, test := range []struct {
		what              string
		config            corev1.PodDNSConfig
		servers, searches int
		warn              string
	}{
		{"at the limits", corev1.PodDNSConfig{Nameservers: []string{"a", "b", "c"}, Searches: domains(32, 60)}, 3, 32, ""},
		{"four name servers", corev1.PodDNSConfig{Nameservers: []string{"a", "b", "c", "d"}}, 3, 0,
			"DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: a b c"},
		{"33 search paths", corev1.PodDNSConfig{Searches: domains(33, 2)}, 0, 32,
			"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(domains(32, 2), " ")},
		{"2048 characters", corev1.PodDNSConfig{Searches: append(domains(8, 255), "x")}, 0, 8,
			"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(domains(8, 255), " ")},
	} {
		t.Run(test.what, func(t *testing.T) {
			got, warnings := testDNS.ForPod(dnsPod(corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &test.config}))
			if len(got.Nameservers) != test.servers || len(got.Searches) != test.searches {
				t.Errorf("%d servers, %d search paths", len(got.Nameservers), len(got.Searches))
			}
			if text := warned(warnings); text != test.warn {
				t.Errorf("warned %q, want %q", text, test.warn)
			}
		})
	}
}

// What a caller does with the result must not change what the node knows.
func TestDNSSharesNothing(t *testing.T) {
	dns := DNS{Host: ResolvConf{Nameservers: []string{"a", "b", "c", "d"}, Options: []string{"x"}}}
	got, _ := dns.ForPod(dnsPod(corev1.PodSpec{DNSPolicy: corev1.DNSDefault}))
	got.Nameservers[0], got.Options[0] = "changed", "changed"
	_ = append(got.Nameservers, "changed")
	if strings.Join(dns.Host.Nameservers, "") != "abcd" || dns.Host.Options[0] != "x" {
		t.Errorf("the node's: %+v", dns.Host)
	}
}

func dnsPod(spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: spec}
}

func warned(warnings []Warning) string {
	texts := make([]string, len(warnings))
	for i, w := range warnings {
		texts[i] = w.Reason + ": " + w.Message
	}
	return strings.Join(texts, "\n")
}
