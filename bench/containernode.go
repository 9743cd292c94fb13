package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// containerNode is an agent that runs containers on this machine.
type containerNode struct {
	agent agent
	// prepare makes what the agent needs for a node of this name. The function that it
	// returns undoes what the agent does to the machine, also after an error.
	prepare func(node string) (undo func() error, err error)
}

// bounds are those of a kubelet's signals for eviction, but that they are never
// reached: both agents watch the same, and a full disk is not what is measured.
var bounds = map[string]string{
	"memory.available": "1Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "1", "imagefs.available": "1Mi", "imagefs.inodesFree": "1",
}

// clusterDNS is where pods are to ask for names. Nobody answers, but a kubelet without
// it sends an event about that again and again.
var clusterDNS = []string{"10.96.0.10"}

// cri is virtual-kubelet with provider cri, as it is by default.
func (b *kubeletBench) cri() containerNode {
	config := func(node string) string { return filepath.Join(b.dir, node+".json") }
	a := agent{name: "cri", command: []string{filepath.Join(b.bin, "virtual-kubelet"), "--nodename", "NODE", "--kubeconfig", "KUBECONFIG",
		"--port", "0", "--debug-http", "--disable-taint", "--provider", "cri", "--provider-config", config("NODE")}}
	return containerNode{a, func(node string) (func() error, error) {
		dir := filepath.Join(b.runtime.Dir(), node)
		return func() error { return removeCgroups(node) }, writeJSON(config(node), map[string]any{
			"endpoint": b.runtime.Endpoint(), "root": filepath.Join(dir, "pods"), "logRoot": filepath.Join(dir, "logs"), "cgroupParent": "/" + node,
			"clusterDNS": clusterDNS, "evictionHard": bounds, "imageGCHighThresholdPercent": 99, "imageGCLowThresholdPercent": 98,
		})
	}}
}

// kubelet is the real one. What differs from its defaults is in kubeletConfig.
func (b *kubeletBench) kubelet() containerNode {
	dir := func(node string) string { return filepath.Join(b.runtime.Dir(), node) }
	config := func(node string) string { return filepath.Join(b.dir, node+".json") }
	a := agent{name: "kubelet", command: []string{filepath.Join(b.bin, "conformance", "kubelet"), "--kubeconfig", "KUBECONFIG", "--hostname-override", "NODE",
		"--config", config("NODE"), "--root-dir", dir("NODE"), "--cert-dir", filepath.Join(dir("NODE"), "pki"), "--node-ip", b.runtime.Gateway()}}
	return containerNode{a, func(node string) (func() error, error) {
		restore, err := rememberSettings()
		undo := func() error { return errors.Join(removeCgroups(node), removeLinks(node), restore()) }
		if err != nil {
			return undo, err
		}
		values, err := b.kubeletConfig(node, dir(node))
		return undo, errors.Join(err, makeCgroups(node), writeJSON(config(node), values))
	}}
}

// kubeletConfig is a kubelet's configuration: with what it needs to run here, beside
// others, and the bounds.
func (b *kubeletBench) kubeletConfig(node, dir string) (map[string]any, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(b.runtime.Gateway(), "0"))
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": b.runtime.Gateway(), "port": port, "healthzPort": 0,
		"authentication":           map[string]any{"x509": map[string]any{"clientCAFile": b.clientCA}},
		"containerRuntimeEndpoint": b.runtime.Endpoint(), "cgroupRoot": "/" + node,
		"failCgroupV1": false, "failSwapOn": false, "makeIPTablesUtilChains": false, "oomScoreAdj": 0,
		"podLogsDir": filepath.Join(dir, "logs"), "volumePluginDir": filepath.Join(dir, "plugins"),
		"clusterDNS": clusterDNS, "clusterDomain": "cluster.local",
		"evictionHard": bounds, "imageGCHighThresholdPercent": 99, "imageGCLowThresholdPercent": 98,
	}, listener.Close()
}

func writeJSON(path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// rememberSettings returns a function that puts back the settings of the machine that
// a kubelet changes, and removes the directories that it makes regardless of its
// configuration says.
func rememberSettings() (restore func() error, err error) {
	settings := map[string][]byte{} // by file
	for _, name := range []string{"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom"} {
		path := filepath.Join("/proc/sys", name)
		value, readErr := os.ReadFile(path)
		settings[path], err = value, errors.Join(err, readErr)
	}
	made := slices.DeleteFunc([]string{"/var/lib/kubelet", "/var/log/containers", "/var/log/pods"}, func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	})
	return func() (err error) {
		for path, value := range settings {
			err = errors.Join(err, os.WriteFile(path, value, 0o644))
		}
		for _, dir := range made {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}, err
}

// removeLinks removes the links to logs that a kubelet has left, of pods in a namespace.
func removeLinks(namespace string) (err error) {
	links, _ := filepath.Glob("/var/log/containers/*_" + namespace + "_*") // the pattern is well-formed
	for _, link := range links {
		err = errors.Join(err, os.Remove(link))
	}
	return err
}

// hierarchies are the directories of the machine's control groups: one for each
// controller in version 1, one for all in version 2.
func hierarchies() []string {
	files, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // the pattern is well-formed
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

// makeCgroups makes a control group, which a kubelet does not do itself for that of all
// its pods.
func makeCgroups(name string) (err error) {
	for _, dir := range hierarchies() {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	return err
}

// removeCgroups removes a control group with those in it, none of which has a process
// any more.
func removeCgroups(name string) (err error) {
	for _, dir := range hierarchies() {
		var groups []string
		walk := filepath.WalkDir(filepath.Join(dir, name), func(path string, entry os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		err = errors.Join(err, walk)
		for _, group := range slices.Backward(groups) {
			if rmdir := unix.Rmdir(group); rmdir != nil {
				err = errors.Join(err, fmt.Errorf("remove the control group %s: %w", strings.TrimPrefix(group, dir), rmdir))
			}
		}
	}
	return err
}
