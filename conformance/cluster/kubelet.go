package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubeletConfig is the reference's configuration.
//
//go:embed kubelet.yaml
var kubeletConfig string

// kubeletSysctls are settings of the machine that the kubelet changes.
var kubeletSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// kubeletFolders are made by the kubelet, regardless of its configuration.
var kubeletDirs = []string{"/var/lib/kubelet", "/var/log/containers", "/var/log/pods"}

// startKubelet starts the real kubelet. It takes back what the kubelet does to
// the machine, but not when this process is killed: it is for comparison only.
func startKubelet(n nodeEnvironment) (_ node, err error) {
	if n.Port == 0 {
		if n.Port, err = freePort(n.Address); err != nil {
			return nil, err
		}
	}
	config, err := n.render("kubelet.yaml", kubeletConfig)
	if err != nil {
		return nil, err
	}
	restore, err := remember(kubeletSysctls, kubeletDirs)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--config", config,
		"--bootstrap-kubeconfig", n.Bootstrap,
		"--kubeconfig", filepath.Join(n.Dir, "kubeconfig"),
		"--cert-dir", filepath.Join(n.Dir, "pki"),
		"--root-dir", filepath.Join(n.Dir, "kubelet"),
		"--hostname-override", n.Name,
		"--node-ip", n.Address,
	}
	cmd := exec.Command(filepath.Join(n.options.bin, "conformance", "kubelet"), append(args, n.options.nodeArgs...)...)
	process, err := startKillable("kubelet", cmd, filepath.Join(n.options.logs, "kubelet.log"))
	if err != nil {
		return nil, errors.Join(err, restore())
	}
	return &kubelet{killable: process, restore: restore}, nil
}

// freePort returns a port that nobody listens on. Until the kubelet does, another
// process may take it; then the kubelet says so.
func freePort(address string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port at %s: %w", address, err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

type kubelet struct {
	*killable
	restore func() error
}

func (k *kubelet) stop() error { return errors.Join(k.killable.stop(), k.restore()) }

// remember returns a function that puts settings back, and removes directories that
// were not there.
func remember(sysctls, dirs []string) (func() error, error) {
	values := map[string]string{}
	for _, name := range sysctls {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return nil, fmt.Errorf("read the setting %s: %w", name, err)
		}
		values[name] = strings.TrimSpace(string(data))
	}
	var absent []string
	for _, dir := range dirs {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			absent = append(absent, dir)
		}
	}
	return func() error {
		var errs []error
		for name, value := range values {
			errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644))
		}
		for _, dir := range absent {
			errs = append(errs, os.RemoveAll(dir))
		}
		return errors.Join(errs...)
	}, nil
}
