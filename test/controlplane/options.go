package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options say how to start a control plane.
type Options struct {
	// Binary is the path of the controlplane binary. Required.
	Binary string

	// Dir is the data directory. It is kept, and a later Start with the same
	// directory continues with the same data, certificates and port.
	// Defaults to a temporary directory, which Stop removes.
	Dir string

	// Address is the address of this machine on which the API server
	// listens. Defaults to 127.0.0.1, which containers with a network of
	// their own cannot reach.
	Address string

	// ServiceCIDR is the range of the cluster IPs of Services, of which the API
	// server has the first. Defaults to 10.96.0.0/16. There is no service proxy.
	ServiceCIDR string

	// Args are further flags of the components, by component
	// ("kube-apiserver", "kube-controller-manager", "kube-scheduler"). They
	// win over the ones that the control plane sets itself.
	Args map[string][]string

	// Log gets the supervisor's progress lines, from another goroutine.
	// Defaults to none. The components log to files in Dir/logs.
	Log io.Writer
}

// complete checks the options and makes the paths absolute.
func (o *Options) complete() error {
	if o.Binary == "" {
		return errors.New("start the control plane: Options.Binary is empty: set it to the path of the controlplane binary, which \"make controlplane\" builds")
	}
	binary, err := filepath.Abs(o.Binary)
	if err != nil {
		return fmt.Errorf("resolve the control plane's binary: %w", err)
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("find the control plane's binary (run \"make controlplane\"): %w", err)
	}
	o.Binary = binary
	if o.Dir != "" {
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return fmt.Errorf("resolve the control plane's data directory: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return nil
}

// flags are the arguments of the supervisor.
func (o *Options) flags(dir string, ephemeral bool) []string {
	flags := []string{"up", "--dir", dir, "--stop-with-stdin"}
	if ephemeral {
		flags = append(flags, "--ephemeral")
	}
	if o.Address != "" {
		flags = append(flags, "--address", o.Address)
	}
	if o.ServiceCIDR != "" {
		flags = append(flags, "--service-cidr", o.ServiceCIDR)
	}
	for component, args := range o.Args {
		for _, arg := range args {
			flags = append(flags, "--arg", component+"="+arg)
		}
	}
	return flags
}
