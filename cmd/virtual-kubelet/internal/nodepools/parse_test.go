package nodepools_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
)

const head = "apiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\n"

func taint(key, value string) []corev1.Taint {
	return []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
}

// options are those of a program with a provider for many nodes, and one for one.
func options() nodepools.Options {
	check := func(config []byte) error {
		if strings.Contains(string(config), "wrong") {
			return errors.New("config:\nwrong")
		}
		return nil
	}
	return nodepools.Options{
		File:  "pools.yaml",
		Kinds: []string{"Configuration"},
		Providers: map[string]nodepools.Provider{
			"mock":    {Check: check},
			"machine": {OneNode: true, Check: check},
			"cloud":   {Check: check},
		},
		OS: "linux", Provider: "mock", Config: "/etc/mock.json",
		Taints: func(provider string) []corev1.Taint { return taint("provider", provider) },
		ReadFile: func(path string) ([]byte, error) {
			if strings.Contains(path, "missing") {
				return nil, fmt.Errorf("open %s: no such file or directory", path)
			}
			return []byte("content of " + path), nil
		},
	}
}

func TestParse(t *testing.T) {
	o := options()
	o.PortPerNode = true
	wanted, err := nodepools.Parse([]byte(head+`
name: edge
deleteNodes: true
pools:
- name: a
  count: 2
  labels: {tier: front}
  annotations: {example.com/note: hello}
  taints: [{key: k, value: v, effect: NoSchedule}]
  os: windows
  capacity: {cpu: 4, memory: 16Gi, nvidia.com/gpu: "2"}
  basePort: 10300
- name: b
  count: 2
  nodeName: b{index}.example.com
  taints: []
  provider: cloud
  providerConfig: {b: 1, a: [x]}
- name: lone
  count: 1
  nodeName: alone
  provider: machine
  providerConfig: machine.json
- name: none
  count: 0
- {name: bare, count: 1, provider: cloud}
`), o)
	if err != nil {
		t.Fatal(err)
	}
	a := nodepools.Node{
		Overlay: nodepools.Overlay{
			Labels: map[string]string{"tier": "front", nodepools.Label: "edge"}, Annotations: map[string]string{"example.com/note": "hello"}, Taints: taint("k", "v"),
			Capacity: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "nvidia.com/gpu": resource.MustParse("2")},
		},
		OS: "windows", Provider: "mock", ProviderConfig: "content of /etc/mock.json",
	}
	a0, a1 := a, a
	a0.Name, a0.Port, a1.Name, a1.Port = "a-0", 10300, "a-1", 10301
	named := map[string]string{nodepools.Label: "edge"}
	b := nodepools.Node{OS: "linux", Provider: "cloud", ProviderConfig: `{"a":["x"],"b":1}`}
	b0, b1 := b, b
	b0.Name, b1.Name = "b0.example.com", "b1.example.com"
	b0.Labels, b1.Labels = named, named
	lone := nodepools.Node{Overlay: nodepools.Overlay{Labels: named}, Name: "alone", OS: "linux", Provider: "machine", ProviderConfig: "content of machine.json"}
	lone.Taints = taint("provider", "machine")
	// The configuration of the command line is for its provider.
	bare := nodepools.Node{Overlay: nodepools.Overlay{Labels: named}, Name: "bare-0", OS: "linux", Provider: "cloud"}
	bare.Taints = taint("provider", "cloud")
	want := []nodepools.Node{a0, a1, b0, b1, lone, bare}
	if !equality.Semantic.DeepEqual(wanted.Nodes, want) {
		t.Errorf("got\n%+v, want\n%+v", wanted.Nodes, want)
	}
	if wanted.Name != "edge" || !wanted.DeleteNodes || !reflect.DeepEqual(wanted.Providers, []string{"cloud", "machine", "mock"}) {
		t.Errorf("name %q, deleteNodes %v, providers %v", wanted.Name, wanted.DeleteNodes, wanted.Providers)
	}
	if _, err := nodepools.Parse([]byte(head+"pools: []"), o); err != nil {
		t.Errorf("no pools are refused: %v", err)
	}
}

// Each error names the file, the field, its value, and what to do.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", `apiVersion: Unsupported value: "": supported values: "virtual-kubelet.io/v1alpha1"`},
		{"another kind", "apiVersion: virtual-kubelet.io/v1alpha1\nkind: Pools", `pools.yaml: kind: Unsupported value: "Pools": supported values: "NodePools", "Configuration"`},
		{"a name too long for a label", head + "pools: [{name: a, count: 11, nodeName: 'a234567890123456789012345678901234567890123456789012345678901-{index}'}]", "pools[a].nodeName: Invalid value"},
		{"no YAML", head + "pools: [", "no YAML"},
		{"a field twice", head + "pools: []\npools: []", `"pools" already set`},
		{"two documents", head + "---\n" + head, "several YAML documents"},
		{"no pools", head, "pools: Required value: list the pools, or write []"},
		{"unknown field", head + "pools: [{name: a, count: 1, cuont: 2}]", `pools[a]: unknown field "cuont": leave it out`},
		{"another case", head + "Pools: []", `unknown field "Pools"`},
		{"wrong type", head + "pools: [{name: a, count: two}]", "pools[a].count: it is of type string, and has to be of type int"},
		{"no name", head + "pools: [{count: 1}]", "pools[0].name: Required value: give the pool a name"},
		{"bad name", head + "pools: [{name: A_1, count: 1}]", `pools[A_1].name: Invalid value: "A_1-{index}": nodes cannot have such names`},
		{"two pools of a name", head + "pools: [{name: a, count: 0}, {name: a, count: 0}]", `pools[a].name: Invalid value: "a": another pool`},
		{"no nodes", head + "pools: [{name: a}]", "pools[a].count: Required value: give the number"},
		{"negative", head + "pools: [{name: a, count: -1}]", "pools[a].count: Invalid value: -1: write a number from 0 on"},
		{"too many", head + "pools: [{name: a, count: 6000}, {name: b, count: 6000}]", "pools[b].count: Invalid value: 6000"},
		{"two nodes of a name", head + "pools: [{name: a, count: 2}, {name: b, count: 1, nodeName: a-1}]", `pools[b].nodeName: Invalid value: "a-1": another pool has a node of this name`},
		{"bad node name", head + "pools: [{name: a, count: 1, nodeName: 'No{index}'}]", `pools[a].nodeName: Invalid value: "No{index}": nodes cannot have such names`},
		{"one name for two", head + "pools: [{name: a, count: 2, nodeName: b}]", `pools[a].nodeName: Invalid value: "b": 2 nodes would have this name: write {index}`},
		{"no name that is a text", head + "pools: [{name: [a]}]", "pools[0].name: it is of type array, and has to be of type string"},
		{"a pool that is none", head + "pools: [a]", "pools[0]: it is of type string"},
		{"pools that are no list", head + "pools: {a: {count: 1}}", "pools: it is of type object"},
		{"bad label", head + "pools: [{name: a, count: 1, labels: {k: 'no spaces'}}]", `pools[a].labels[k]: Invalid value: "no spaces"`},
		{"host name", head + "pools: [{name: a, count: 1, labels: {kubernetes.io/hostname: x}}]", `pools[a].labels[kubernetes.io/hostname]: Invalid value: "x": it is the name of each node: leave it out`},
		{"os label", head + "pools: [{name: a, count: 1, labels: {kubernetes.io/os: linux}}]", "write os instead"},
		{"label of the file", head + "pools: [{name: a, count: 1, labels: {virtual-kubelet.io/node-pools: x}}]", "write it as the name of the file"},
		{"deletion without a name", head + "deleteNodes: true\npools: []", "name: Required value: deleteNodes identifies the Nodes"},
		{"a name that is no label", head + "name: a b\npools: []", `name: Invalid value: "a b"`},
		{"bad annotation", head + "pools: [{name: a, count: 1, annotations: {'a b': x}}]", `pools[a].annotations: Invalid value: "a b"`},
		{"our annotation", head + "pools: [{name: a, count: 1, annotations: {virtual-kubelet.io/owned: x}}]", "virtual-kubelet's own: leave it out"},
		{"taint without effect", head + "pools: [{name: a, count: 1, taints: [{key: k}]}]", `pools[a].taints[0].effect: Unsupported value: ""`},
		{"bad taint", head + "pools: [{name: a, count: 1, taints: [{key: 'a b', value: 'c d', effect: NoSchedule}]}]", `pools[a].taints[0].value: Invalid value: "c d"`},
		{"taint twice", head + "pools: [{name: a, count: 1, taints: [{key: k, effect: NoSchedule}, {key: k, value: v, effect: NoSchedule}]}]", `pools[a].taints[1]: Invalid value: "k:NoSchedule"`},
		{"os", head + "pools: [{name: a, count: 1, os: beos}]", `pools[a].os: Unsupported value: "beos": supported values: "linux", "windows"`},
		{"provider", head + "pools: [{name: a, count: 1, provider: nope}]", `pools[a].provider: Unsupported value: "nope": supported values: "cloud", "machine", "mock"`},
		{"too many nodes for a provider", head + "pools: [{name: a, count: 1, provider: machine}, {name: b, count: 1, provider: machine}]", `pools[b].provider: Invalid value: "machine": it is for one node in a process`},
		{"no such configuration", head + "pools: [{name: a, count: 1, providerConfig: missing.json}]", `pools[a].providerConfig: Invalid value: "missing.json": it cannot be read`},
		{"bad configuration", head + "pools: [{name: a, count: 1, providerConfig: {wrong: 1}}]", "pools[a].providerConfig: Invalid value: \"\": config:; wrong"},
		{"no configuration", head + "pools: [{name: a, count: 1, providerConfig: [1]}]", `pools[a].providerConfig: Invalid value: write the provider's configuration here`},
		{"negative capacity", head + "pools: [{name: a, count: 1, capacity: {cpu: -1}}]", `pools[a].capacity[cpu]: Invalid value: "-1": write a quantity from 0 on`},
		{"capacity", head + "pools: [{name: a, count: 1, capacity: {cpu: lots}}]", `pools[a].capacity[cpu]: Invalid value: "lots": write a quantity from 0 on`},
		{"port without a port per node", head + "pools: [{name: a, count: 1, basePort: 10300}]", "pools[a].basePort: Invalid value: 10300: all nodes are served on one port: start with --port-per-node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wanted, err := nodepools.Parse([]byte(c.text), options())
			if err == nil || wanted != nil && (wanted.DeleteNodes || strings.Count(c.text, "{name: ") < 2) {
				t.Fatalf("got %+v and %v", wanted, err)
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "pools.yaml: ") {
					t.Errorf("%q does not name the file", line)
				}
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A configuration that is no object may have secrets all the same.
func TestParseDoesNotPrintConfigurations(t *testing.T) {
	o := options()
	o.ReadFile = func(path string) ([]byte, error) { return nil, fmt.Errorf("open %s: no such file or directory", path) }
	for _, text := range []string{"|\n    a: 1\n    token: s3cret", "'token: s3cret'", `'{"token": "s3cret"'`, "[token, s3cret]"} {
		_, err := nodepools.Parse([]byte(head+"pools:\n- name: a\n  count: 1\n  providerConfig: "+text), o)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "pools[a].providerConfig: Invalid value: write ") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestParseRefusesPorts(t *testing.T) {
	o := options()
	o.PortPerNode = true
	for text, want := range map[string]string{
		"[{name: a, count: 3, basePort: 65534}]":                                   "pools[a].basePort: Invalid value: 65534: 3 nodes have no ports from there on",
		"[{name: a, count: 1, basePort: -1}]":                                      "pools[a].basePort: Invalid value: -1",
		"[{name: a, count: 5, basePort: 100}, {name: b, count: 1, basePort: 104}]": "pools[b].basePort: Invalid value: 104: node b-0 would have the port 104 of node a-4",
	} {
		if _, err := nodepools.Parse([]byte(head+"pools: "+text), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestParseNamesAllErrors(t *testing.T) {
	_, err := nodepools.Parse([]byte(head+`
pools:
- {name: a, count: -1, os: beos, colour: red}
- {name: c, count: many}
- {name: b, count: 1, provider: nope}
`), options())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`pools[a]: unknown field "colour"`, "pools[a].count", "pools[a].os", "pools[c].count", "pools[b].provider"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
}
