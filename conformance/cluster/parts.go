package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerd is the runtime; see the package test/containerd.
type containerd struct {
	*daemon
	dir                       string
	Endpoint, Gateway, Subnet string
}

func startContainerd(ctx context.Context, o *options, images, mirror string) (*containerd, error) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, fmt.Errorf("make containerd's directory: %w", err)
	}
	c := &containerd{dir: dir}
	var line string
	c.daemon, line, err = startDaemon(ctx, "containerd-up", filepath.Join(o.bin, "containerd-up"), "up", "--stop-with-stdin",
		"--dir", dir, "--sandbox-image", "localhost/pause:latest", "--image", images, "--mirror", mirror,
		"--log-file", filepath.Join(o.logs, "containerd.log"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(line), c); err != nil {
		_ = c.stop()
		return nil, fmt.Errorf("read what containerd-up says: %w", err)
	}
	return c, nil
}

// controlPlane is the program of the module controlplane.
type controlPlane struct {
	*daemon
	binary, dir string
}

// startControlPlane starts it at an address that pods reach.
func startControlPlane(ctx context.Context, o *options, address string) (*controlPlane, error) {
	dir, err := os.MkdirTemp("", "controlplane-")
	if err != nil {
		return nil, fmt.Errorf("make the control plane's directory: %w", err)
	}
	p := &controlPlane{binary: filepath.Join(o.bin, "controlplane"), dir: dir}
	p.daemon, _, err = startDaemon(ctx, "controlplane", p.binary, "up", "--stop-with-stdin", "--ephemeral", "--dir", dir, "--address", address)
	return p, err
}

func (p *controlPlane) kubeconfig() string {
	return filepath.Join(p.dir, "kubeconfig", "admin.kubeconfig")
}

// clientCA is the authority of the clients that the node serves.
func (p *controlPlane) clientCA() string { return filepath.Join(p.dir, "pki", "ca.crt") }

// kubectl runs kubectl as the administrator.
func (p *controlPlane) kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig(), "KUBECACHEDIR="+filepath.Join(p.dir, "kubectl"), "KUBERC=off")
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// installKubectl makes a kubectl of the control plane's program, and returns the
// directory that it is in.
func (p *controlPlane) installKubectl() (string, error) {
	dir := filepath.Join(p.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for kubectl: %w", err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' kubectl \"$@\"\n", p.binary)
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("make kubectl: %w", err)
	}
	return dir, nil
}

// bootstrapKubeconfig makes a file with which a node gets a certificate of its
// own, as nodes of real clusters do.
func (p *controlPlane) bootstrapKubeconfig(ctx context.Context) (string, error) {
	id, secret := strings.ToLower(rand.Text()[:6]), strings.ToLower(rand.Text()[:16])
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]string{"name": "bootstrap-token-" + id, "namespace": "kube-system"},
		"stringData": map[string]string{
			"token-id": id, "token-secret": secret,
			"usage-bootstrap-authentication": "true",
		},
	})
	if err != nil {
		return "", err
	}
	if _, err := p.kubectl(ctx, string(manifest), "create", "-f", "-"); err != nil {
		return "", fmt.Errorf("make a bootstrap token: %w", err)
	}
	// The administrator's file says where the cluster is.
	out, err := p.kubectl(ctx, "", "config", "view", "--raw", "--output=json")
	if err != nil {
		return "", err
	}
	var config map[string]any
	if err := json.Unmarshal(out, &config); err != nil {
		return "", fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	users, _ := config["users"].([]any)
	if len(users) != 1 {
		return "", fmt.Errorf("read the administrator's kubeconfig: it has %d users, not one", len(users))
	}
	users[0].(map[string]any)["user"] = map[string]string{"token": id + "." + secret}
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.dir, "bootstrap.kubeconfig")
	return path, os.WriteFile(path, data, 0o600)
}

// describeNode says what a node says of itself.
func (p *controlPlane) describeNode(ctx context.Context, name string) (string, error) {
	out, err := p.kubectl(ctx, "", "get", "node/"+name, "--output=json")
	if err != nil {
		return "", err
	}
	var node struct {
		Status struct {
			NodeInfo struct{ KubeletVersion, ContainerRuntimeVersion, KernelVersion, OSImage, Architecture string }
			Capacity struct{ CPU, Memory string }
		}
	}
	if err := json.Unmarshal(out, &node); err != nil {
		return "", fmt.Errorf("read what the node says of itself: %w", err)
	}
	i, c := node.Status.NodeInfo, node.Status.Capacity
	parts := []string{i.KubeletVersion, i.ContainerRuntimeVersion, "Linux " + i.KernelVersion, i.OSImage, i.Architecture, c.CPU + " CPUs", c.Memory}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", "), nil
}

// waitForNode returns when the node is ready.
func (p *controlPlane) waitForNode(ctx context.Context, name string, n node) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		_, err := p.kubectl(ctx, "", "wait", "--for=condition=Ready", "--timeout=5s", "node/"+name)
		if err == nil {
			return nil
		}
		if n.ended() != nil { // its stop says so
			return errors.New("the node was not ready")
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("wait for the node: %w", err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}
