package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/template"
)

// nodeEnvironment is what a node is started in. The exported fields are for
// templates of configuration.
type nodeEnvironment struct {
	options *options

	Name      string
	Bin       string // directory with the programs
	Endpoint  string // of the container runtime, if there is one
	Dir       string // for the node's files; unmounted and removed in the end
	Address   string // of this machine, as pods reach it
	Port      int    // of the node's API; 0 takes a free one
	ClientCA  string // file
	Bootstrap string // kubeconfig with which the node gets a certificate
}

// node is a started node.
type node interface {
	ended() error // says that it has ended by itself
	stop() error
}

// nodeKind makes one kind of node: first the ground that it is on, then, when the
// control plane is up, the node.
type nodeKind struct {
	prepare func(context.Context, *options) (*ground, error)
	start   func(nodeEnvironment) (node, error)
}

// chooseNode is the place to plug in a further kind of node.
func chooseNode(kind string) (nodeKind, error) {
	switch kind {
	case "kubelet":
		return nodeKind{prepareContainers, startKubelet}, nil
	case "cri":
		return nodeKind{prepareContainers, startCRI}, nil
	case "process":
		return nodeKind{prepareMachine, startProcess}, nil
	}
	return nodeKind{}, fmt.Errorf("there is no node %q: use cri, process or kubelet", kind)
}

// render fills a template of a file and writes it to the node's directory.
func (n nodeEnvironment) render(name, text string) (string, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("read the template of %s: %w", name, err)
	}
	var content bytes.Buffer
	if err := t.Execute(&content, n); err != nil {
		return "", fmt.Errorf("fill the template of %s: %w", name, err)
	}
	path := filepath.Join(n.Dir, name)
	if err := os.WriteFile(path, content.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}

// criConfig is the configuration of the provider cri. A full disk is not what is tested
// here, and images cannot be had again.
//
//go:embed cri.json
var criConfig string

func startCRI(n nodeEnvironment) (node, error) { return startVirtualKubelet(n, "cri", criConfig) }

// startVirtualKubelet starts the binary of this repository, as the node itself
// ("system:node:NAME"): it has no more rights than a kubelet.
func startVirtualKubelet(n nodeEnvironment, provider, template string) (node, error) {
	if n.options.providerConfig != "" {
		text, err := os.ReadFile(n.options.providerConfig)
		if err != nil {
			return nil, fmt.Errorf("read the template of the provider's configuration: %w", err)
		}
		template = string(text)
	}
	config, err := n.render("provider.json", template)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--nodename", n.Name,
		"--bootstrap-kubeconfig", n.Bootstrap,
		"--cert-dir", filepath.Join(n.Dir, "pki"),
		"--client-ca-file", n.ClientCA,
		"--provider", provider,
		"--provider-config", config,
		"--listen-address", n.Address,
		"--port", strconv.Itoa(n.Port),
		"--disable-taint",           // the suite's pods tolerate none
		"--event-source", "kubelet", // by which the suite finds events
		"--log-level", "debug",
	}
	cmd := exec.Command(filepath.Join(n.options.bin, "virtual-kubelet"), append(args, n.options.nodeArgs...)...)
	cmd.Env = append(os.Environ(), "VKUBELET_POD_IP="+n.Address)
	return startKillable("virtual-kubelet", cmd, filepath.Join(n.options.logs, "virtual-kubelet.log"))
}
