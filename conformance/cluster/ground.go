package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ground is what a node is on.
type ground struct {
	dir      string // for files; removed in the end
	address  string // of this machine, as pods reach it
	endpoint string // of the container runtime, if there is one
	stop     func() error
}

// prepareContainers starts a registry and containerd.
func prepareContainers(ctx context.Context, o *options) (*ground, error) {
	images := filepath.Join(o.bin, "conformance", "images.tar")
	progress("starting a registry")
	mirror, closeMirror, err := serveImages(images)
	if err != nil {
		return nil, err
	}
	progress("starting containerd")
	containerd, err := startContainerd(ctx, o, images, mirror)
	if err != nil {
		closeMirror()
		return nil, err
	}
	return &ground{
		dir: containerd.dir, address: containerd.Gateway, endpoint: containerd.Endpoint,
		stop: func() error {
			defer closeMirror()
			return containerd.stop()
		},
	}, nil
}

// prepareMachine makes a directory: processes need no more.
func prepareMachine(context.Context, *options) (*ground, error) {
	address, err := ownAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	// Users that pods run as pass through it.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("open %s for pods: %w", dir, err)
	}
	return &ground{dir: dir, address: address, stop: func() error {
		detachBelow(dir)
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the node's directory: %w", err)
		}
		return nil
	}}, nil
}

// detachBelow detaches what a node that has ended has left mounted below a directory.
func detachBelow(dir string) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}

// ownAddress is the machine's address in its network. The API server refuses to
// speak to pods and nodes at 127.0.0.1.
func ownAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("the machine has no IPv4 address but 127.0.0.1: give it one, such as with \"ip address add 192.0.2.1/32 dev lo\"")
}
