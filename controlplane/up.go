package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var loopback = net.IPv4(127, 0, 0, 1)

// upOptions are the flags of "controlplane up".
type upOptions struct {
	dir         string // empty for a temporary one
	ephemeral   bool   // remove dir at the end
	kubeconfig  string // an additional copy
	address     net.IP
	port        int
	serviceCIDR string
	extra       map[string][]string
	stdout      io.Writer // the one line that says: ready
	stderr      io.Writer // progress
}

// up runs a control plane until the context is cancelled.
func up(ctx context.Context, o upOptions) (err error) {
	begin := time.Now()
	if o.address.IsUnspecified() {
		return errors.New("--address must be one address of this machine: it is the one in the kubeconfig")
	}
	if o.kubeconfig != "" {
		if o.kubeconfig, err = filepath.Abs(o.kubeconfig); err != nil {
			return fmt.Errorf("resolve --kubeconfig: %w", err)
		}
		if err := checkKubeconfigTarget(o.kubeconfig); err != nil {
			return err
		}
	}
	l, remove, err := prepareDir(o.dir, o.ephemeral)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	lock, err := lockDir(l)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.Chdir(l.dir); err != nil { // see controlSocket
		return fmt.Errorf("enter the data directory: %w", err)
	}

	ports, release, err := reservePorts(l, o)
	if err != nil {
		return err
	}
	defer release()
	flags, err := prepareFlags(l, o, ports)
	if err != nil {
		return err
	}
	server := "https://" + net.JoinHostPort(o.address.String(), flags.port(apiServerName))
	kubeconfig, err := writeKubeconfigs(l, o, flags.pki, server)
	if err != nil {
		return err
	}
	client, err := adminClient(kubeconfig)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own binary to start the components: %w", err)
	}
	s := &supervisor{
		executable: executable,
		dir:        l.dir,
		components: components(flags, server),
		progress:   func(format string, args ...any) { fmt.Fprintf(o.stderr, format+"\n", args...) },
	}
	return s.run(ctx, client, func() error {
		_, err := fmt.Fprintf(o.stdout, "ready after %.1fs: export KUBECONFIG=%s\n", time.Since(begin).Seconds(), kubeconfig)
		return err
	})
}

// prepareDir makes the data directory and returns how to remove it at the end.
func prepareDir(dir string, ephemeral bool) (layout, func() error, error) {
	keep := func() error { return nil }
	if dir == "" {
		tmp, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return layout{}, nil, fmt.Errorf("make a temporary data directory: %w", err)
		}
		dir, ephemeral = tmp, true
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, nil, fmt.Errorf("resolve --dir: %w", err)
	}
	if ephemeral {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			return layout{}, nil, fmt.Errorf("%s is not empty and --ephemeral would remove it: choose another --dir", dir)
		}
	}
	for _, sub := range []string{"", "pki", "kubeconfig", "logs", "etcd"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return layout{}, nil, fmt.Errorf("make the data directory: %w", err)
		}
	}
	if !ephemeral {
		return layout{dir}, keep, nil
	}
	return layout{dir}, func() error {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the data directory: %w", err)
		}
		return nil
	}, nil
}

// reservePorts reserves a port for each component that listens on one.
func reservePorts(l layout, o upOptions) (map[string]int, func(), error) {
	var reserved []*reservation
	release := func() {
		for _, r := range reserved {
			r.release()
		}
	}
	ports := map[string]int{}
	for _, name := range []string{apiServerName, controllerManagerName, schedulerName} {
		reserve := func() (*reservation, error) { return reservePort(loopback, 0) }
		if name == apiServerName {
			reserve = func() (*reservation, error) { return reserveAPIServerPort(l, o.address, o.port) }
		}
		r, err := reserve()
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		reserved = append(reserved, r)
		ports[name] = r.port
	}
	return ports, release, nil
}

func prepareFlags(l layout, o upOptions, ports map[string]int) (*flagSource, error) {
	_, services, err := net.ParseCIDR(o.serviceCIDR)
	if err != nil {
		return nil, fmt.Errorf("--service-cidr: %w", err)
	}
	kubernetesService := append(net.IP(nil), services.IP...)
	kubernetesService[len(kubernetesService)-1]++ // the first address of the range
	p, err := ensurePKI(l, []net.IP{loopback, o.address, kubernetesService})
	if err != nil {
		return nil, err
	}
	f := &flagSource{layout: l, pki: p, address: o.address, serviceCIDR: o.serviceCIDR, ports: ports, extra: o.extra}
	if !o.address.IsLoopback() {
		f.advertise = o.address
	}
	return f, nil
}

// writeKubeconfigs writes one kubeconfig a client and returns the path of the
// administrator's.
func writeKubeconfigs(l layout, o upOptions, p *pki, server string) (string, error) {
	admin := l.kubeconfig("admin")
	files := map[string]*keyPair{
		admin:                               p.admin,
		l.kubeconfig(controllerManagerName): p.controllerManager,
		l.kubeconfig(schedulerName):         p.scheduler,
	}
	if o.kubeconfig != "" {
		admin = o.kubeconfig
		files[admin] = p.admin
	}
	for path, user := range files {
		if err := writeKubeconfig(path, server, p.ca, user); err != nil {
			return "", err
		}
	}
	return admin, nil
}

func adminClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the administrator's client: %w", err)
	}
	return client, nil
}

// components lists what runs, in the order of start.
func components(f *flagSource, server string) []*component {
	local := func(name string) string {
		return "https://" + net.JoinHostPort(loopback.String(), strconv.Itoa(f.ports[name]))
	}
	list := []*component{
		{name: etcdName, args: f.etcd(), ready: socketReady(etcdSocket, "/health")},
		{name: apiServerName, args: f.apiServer(), ready: endpointReady(f.pki.ca, server+"/readyz")},
		{name: controllerManagerName, args: f.controllerManager(), ready: endpointReady(f.pki.ca, local(controllerManagerName)+"/healthz")},
		{name: schedulerName, args: f.scheduler(), ready: endpointReady(f.pki.ca, local(schedulerName)+"/readyz")},
	}
	for _, c := range list {
		c.log = f.layout.log(c.name)
	}
	return list
}
