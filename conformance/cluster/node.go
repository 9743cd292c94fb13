package main

import (
	"bytes"
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
	Endpoint  string // of the container runtime
	Dir       string // for the node's files; unmounted and removed in the end
	Address   string // of this machine, in the pods' network
	Port      int    // for the kubelet API
	ClientCA  string // file
	Bootstrap string // kubeconfig with which the node gets a certificate
}

// node is a started node.
type node interface {
	ended() error // says that it has ended by itself
	stop() error
}

// startNode starts a node.
type startNode func(nodeEnvironment) (node, error)

// chooseNode is the place to plug in a further kind of node.
func chooseNode(kind string) (startNode, error) {
	switch kind {
	case "kubelet":
		return startKubelet, nil
	case "virtual-kubelet":
		return startVirtualKubelet, nil
	}
	return nil, fmt.Errorf("there is no node %q: use virtual-kubelet or kubelet", kind)
}

// render fills a template of a file and writes it to the node's folder.
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

// startVirtualKubelet starts the binary of this repository, as the node itself
// ("system:node:NAME"): it has no more rights than a kubelet.
func startVirtualKubelet(n nodeEnvironment) (node, error) {
	text, err := os.ReadFile(n.options.providerConfig)
	if err != nil {
		return nil, fmt.Errorf("read the template of the provider's configuration: %w: name one with -provider-config", err)
	}
	config, err := n.render("provider.json", string(text))
	if err != nil {
		return nil, err
	}
	args := []string{
		"--nodename", n.Name,
		"--bootstrap-kubeconfig", n.Bootstrap,
		"--cert-dir", filepath.Join(n.Dir, "pki"),
		"--client-ca-file", n.ClientCA,
		"--provider", "cri",
		"--provider-config", config,
		"--listen-address", n.Address,
		"--port", strconv.Itoa(n.Port),
		"--disable-taint", // the suite's pods tolerate none
		"--log-level", "debug",
	}
	cmd := exec.Command(filepath.Join(n.options.bin, "virtual-kubelet"), append(args, n.options.nodeArgs...)...)
	cmd.Env = append(os.Environ(), "VKUBELET_POD_IP="+n.Address)
	return startKillable("virtual-kubelet", cmd, filepath.Join(n.options.logs, "virtual-kubelet.log"))
}
