//go:build integration

package ec2

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2/ec2test"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// Instances of the fake are network namespaces of this machine, which the script of provider machine
// makes, with a network of their own. What runs pods in them is tested there; these checks are about
// what EC2 has to do with.
func TestKit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root: run this test as root")
	}
	const address = "10.231.8.1"
	text, err := os.ReadFile("../testdata/netns-machines")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("net=10.231.0 "), []byte("net=10.231.8 ")), []byte("bridge=vkmachines"), []byte("bridge=vkmec2"))
	dir, err := os.MkdirTemp("", "instances-") // through which all users can pass
	if err != nil {
		t.Fatal(err)
	}
	script, machines := filepath.Join(dir, "script"), filepath.Join(dir, "machines")
	binary, err := filepath.Abs("../../../bin/virtual-kubelet")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(machines, 0o755), os.WriteFile(script, text, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(verb string, in any) (out []byte) {
		input, err := json.Marshal(in)
		if err != nil {
			t.Error(err)
		}
		command := exec.Command(script, binary, machines, verb)
		command.Stdin = bytes.NewReader(input)
		if out, err = command.Output(); err != nil {
			t.Errorf("%s of an instance: %v", verb, err)
		}
		return out
	}
	t.Cleanup(func() {
		run("clean", nil)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, usual)
	r.server.Lag = time.Second
	r.server.Boot = func(i ec2test.Instance) (string, func()) {
		spec := machine.Spec{Name: i.Tags[tagName], Tags: i.Tags, UserData: i.UserData}
		var made machine.Machine
		if err := json.Unmarshal(run("create", spec), &made); err != nil {
			t.Error(err)
		}
		return made.Address, func() { run("delete", made) }
	}
	port := machinetest.FreePort(t)
	cpu, memory := resource.MustParse("1000"), resource.MustParse("4Ti")
	r.cfg.Cluster, r.cfg.StateDir, r.cfg.Refresh = "kit", t.TempDir(), metav1.Duration{Duration: time.Second}
	r.cfg.Bootstrap = machine.BootstrapConfig{Listen: fmt.Sprintf("0.0.0.0:%d", port), URL: fmt.Sprintf("https://%s:%d", address, port)}
	r.cfg.Types = []machine.TypeConfig{{Name: "m7i.large", CPU: &cpu, Memory: &memory}}
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			d, err := New(r.cfg, r.account)
			if err != nil {
				return nil, nil, err
			}
			return machine.New(init, r.cfg, d)
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "..", "bin", "controlplane"),
		NodeName:     "providertest-ec2",
	}.Run(t)
}
