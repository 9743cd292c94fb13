//go:build !chosen_providers || provider_mock

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func init() { providers["mock"] = mockEntry }

var mockEntry = providerEntry{
	summary: "pods that only seem to run, for tests and benchmarks",
	config: `YAML or JSON, an object with a part for each node, by name; all fields are
optional (providers/mock/README.md has the rest):

  {"NODE": {"cpu": "20", "memory": "100Gi", "pods": "1000",
            "others": {"nvidia.com/gpu": "4"}, "providerID": "mock://1",
            "startDelay": "1s", "stopDelay": "1s", "journal": "FILE"}}
`,
	sample: (*mock.Provider)(nil),
	served: true,
	check: func(config []byte) error {
		_, err := mock.ParseConfig(config, "")
		return err
	},
	new: newMock,
}

func newMock(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := mock.ParseConfig(init.Config, init.NodeName)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.HostIP = init.InternalIP
	cfg.OperatingSystem = init.OS
	var opts []mock.Option
	var closers closers
	if cfg.Journal != "" {
		file, err := os.OpenFile(cfg.Journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("cannot open the journal of the mock provider: %w", err)
		}
		closers = append(closers, file)
		opts = append(opts, mock.WithJournal(file))
	}
	provider, err := mock.New(cfg, opts...)
	if err != nil {
		return nil, nil, nil, errors.Join(err, closers.Close())
	}
	provider.ConfigureNode(context.Background(), init.Node)
	if init.sent {
		init.Node.Status.Addresses = nil // those of the virtual kubelet, where the kubelet API is
	}
	return provider, provider, append(closers, provider), nil
}

// closers are closed from the last to the first.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for i := len(c) - 1; i >= 0; i-- {
		errs = append(errs, c[i].Close())
	}
	return errors.Join(errs...)
}
