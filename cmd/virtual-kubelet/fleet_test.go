package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

func TestMain(m *testing.M) {
	for _, serve := range atStart {
		serve()
	}
	utilruntime.ErrorHandlers = nil // which wait in real time
	os.Exit(m.Run())
}

// The file that docs and deploy show.
func TestExampleOfPools(t *testing.T) {
	example, err := os.ReadFile("../../deploy/nodepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), string(example)) {
		t.Error("docs/scale.md does not show deploy/nodepools.yaml as it is")
	}
	p := newPoolFile(&options{poolsFile: "../../deploy/nodepools.yaml", os: "linux"})
	wanted, err := p.Load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range wanted.Nodes {
		names = append(names, n.Name)
	}
	if want := []string{"front-0", "front-1", "front-2", "edge0.example.com", "edge1.example.com"}; !slices.Equal(names, want) {
		t.Errorf("its nodes are %q, want %q", names, want)
	}
}

// parsed returns the options of a command line.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(flags, func(string) string { return "" })
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return &o
}

// The flags become nodes that run until the end, with their provider and its taint.
func TestRunFleet(t *testing.T) {
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	writePools(t, pools, `{pools: [{name: a, count: 1}, {name: b, count: 1, os: windows, taints: []}]}`)
	for _, c := range []struct{ args, want []string }{
		{[]string{"--nodes", "2", "--nodename", "vk"}, []string{"vk-0 linux mock 1 taints True", "vk-1 linux mock 1 taints True"}},
		{[]string{"--config", pools}, []string{"a-0 linux mock 1 taints True", "b-0 windows mock 0 taints True"}},
		{[]string{"--nodes", "1", "--shards", "1"}, []string{"virtual-kubelet-0 linux mock 1 taints True"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				v := &virtualNode{options: parsed(t, append(c.args, "--provider", "mock")...), client: client, address: "192.0.2.1", standby: newStandby()}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- v.runFleet(ctx, time.Now()) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, n := range list.Items {
					ready := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
					if ready < 0 {
						t.Fatalf("node %s has no Ready condition", n.Name)
					}
					got = append(got, fmt.Sprint(n.Name, " ", n.Status.NodeInfo.OperatingSystem, " ", n.Labels[node.LabelProvider], " ", len(n.Spec.Taints), " taints ", n.Status.Conditions[ready].Status))
				}
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("the nodes are %q, want %q", got, c.want)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Each node has its own address and claim, and the values of the flags.
func TestFleetConfig(t *testing.T) {
	o := parsed(t, "--provider", "mock", "--nodes", "3", "--port-per-node", "--port", "10300", "--listen-address", "192.0.2.7")
	v := &virtualNode{options: o, client: fake.NewSimpleClientset(), address: "192.0.2.1"}
	config, err := v.fleetConfig()
	if err != nil {
		t.Fatal(err)
	}
	if !config.Nodes.PortPerNode || config.Shards.Count != 0 || config.File != nil || len(config.Fixed.Nodes) != 3 {
		t.Errorf("got %+v, want three nodes with a port each", config)
	}
	one, err := config.NodeConfig(config.Fixed.Nodes[2], false)
	if err != nil {
		t.Fatal(err)
	}
	if one.HTTPListenAddr != "192.0.2.7:10302" || one.NodeSpec.Name != o.nodeName+"-2" || one.Claim == nil || one.Flags["nodes"] != "3" {
		t.Errorf("node 2 is configured with %+v", one)
	}
	if v.nodeName != o.nodeName || v.as(nodepools.Node{Name: "other"}).nodeName != "other" {
		t.Error("a node has changed the options of all")
	}
}
