package main

import "path/filepath"

// layout says where things are in a data directory, which is an absolute path.
type layout struct{ dir string }

func (l layout) pki(file string) string { return filepath.Join(l.dir, "pki", file) }

func (l layout) kubeconfig(user string) string {
	return filepath.Join(l.dir, "kubeconfig", user+".kubeconfig")
}

func (l layout) log(component string) string {
	return filepath.Join(l.dir, "logs", component+".log")
}

func (l layout) etcdData() string { return filepath.Join(l.dir, "etcd") }

// lock holds the supervisor's process id and is locked while it lives.
func (l layout) lock() string { return filepath.Join(l.dir, "controlplane.pid") }

// port remembers the API server's port, so that kubeconfigs stay valid.
func (l layout) port() string { return filepath.Join(l.dir, "port") }

// controlSocket is relative to the data directory: the path of a Unix socket
// may have 107 bytes only, and data directories of tests have long names.
const controlSocket = "control.sock"
