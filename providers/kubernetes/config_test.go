package kubernetes

import (
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const header = "apiVersion: kubernetes.virtual-kubelet.io/v1\nkind: RemoteCluster\n"

func TestParseConfigDefaults(t *testing.T) {
	cfg, err := ParseConfig([]byte(header + "cluster: home\nremote: {kubeconfig: /etc/remote}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Namespaces.Mapping != translate.Same || cfg.Evicted != Fail || cfg.Stats != StatsNone || cfg.Capacity.Source != CapacityFixed {
		t.Errorf("%+v", cfg)
	}
	if got := cfg.Capacity.Resources.Pods().Value(); got != 110 {
		t.Errorf("%d pods", got)
	}
}

// An error says which field is wrong, and what is right.
func TestParseConfigRefuses(t *testing.T) {
	const good = header + "cluster: home\nremote: {kubeconfig: /etc/remote}\n"
	for _, c := range []struct{ what, text, says string }{
		{"nothing", "", ConfigAPIVersion},
		{"another version", "apiVersion: v2\nkind: RemoteCluster\n", ConfigAPIVersion},
		{"a field that there is not", good + "namespace: x\n", `"namespace"`},
		{"a second document", good + "---\nevicted: restart\n", "several YAML documents"},
		{"no cluster", header + "remote: {kubeconfig: /etc/remote}\n", "cluster:"},
		{"no label value", header + "cluster: a b\nremote: {kubeconfig: /etc/remote}\n", "cluster:"},
		{"no remote", header + "cluster: home\n", "remote:"},
		{"two ways", header + "cluster: home\nremote: {kubeconfig: /a, inCluster: true}\n", "one of"},
		{"no token", header + "cluster: home\nremote: {server: 'https://a'}\n", "tokenFile"},
		{"no TLS", header + "cluster: home\nremote: {server: 'http://a', tokenFile: /t}\n", "https://"},
		{"no prefix", good + "namespaces: {mapping: prefix}\n", "namespaces.prefix"},
		{"prefix for another mapping", good + "namespaces: {prefix: a-}\n", "namespaces.prefix"},
		{"no mapping", good + "namespaces: {mapping: none}\n", "namespaces.mapping"},
		{"no namespace", good + "namespaces: {mapping: fixed, name: A_B}\n", "A_B"},
		{"no policy", good + "evicted: ignore\n", "evicted"},
		{"no time after which a pod fails", good + "unschedulable: {then: fail}\n", "unschedulable.after"},
		{"a time after which nothing happens", good + "unschedulable: {after: 10m}\n", "unschedulable.after"},
		{"no policy of unscheduled pods", good + "unschedulable: {after: 10m, then: wait}\n", "unschedulable.then"},
		{"a negative time", good + "unreachable: {keepReady: -1m}\n", "unreachable.keepReady"},
		{"no source of tokens", good + "tokens: remote\n", "tokens"},
		{"ranges of different sizes", good + "podIPs: [{remote: 10.0.0.0/8, home: 10.0.0.0/16}]\n", "podIPs[0]"},
		{"no range", good + "podIPs: [{remote: ten, home: 10.0.0.0/16}]\n", "podIPs[0].remote"},
		{"negative", good + "capacity: {resources: {cpu: -1}}\n", "capacity.resources.cpu"},
		{"no quantity", good + "capacity: {resources: {cpu: lots}}\n", "quantit"},
		{"quota of all namespaces", good + "capacity: {source: quota}\n", "capacity.source"},
		{"claims that there are not", good + "deleteClaims: true\n", "storageClasses"},
		{"services of several namespaces in one", good + "services: true\nnamespaces: {mapping: map, map: {a: x, b: x}}\n", "services:"},
		{"services in a fixed namespace", good + "services: true\nnamespaces: {mapping: fixed, name: x}\n", "services:"},
		{"no selector", good + "capacity: {nodeSelector: 'a=('}\n", "capacity.nodeSelector"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := ParseConfig([]byte(c.text))
			if err == nil || !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %s", err, c.says)
			}
		})
	}
}
