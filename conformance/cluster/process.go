package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// processConfig is the configuration of the provider process. The operator trusts
// the pods, and says what the suite's images stand for.
//
//go:embed process.json
var processConfig string

func startProcess(n nodeEnvironment) (node, error) {
	if err := n.installSetuid(); err != nil {
		return nil, fmt.Errorf("install the suite's program nnp: %w", err)
	}
	if err := os.Chmod(n.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("open the node's directory for pods: %w", err)
	}
	return startVirtualKubelet(n, "process", processConfig)
}

// Setuid is where the suite's program nnp is, which reports whether it got root's
// rights from its file.
func (n nodeEnvironment) Setuid() string { return filepath.Join(n.Dir, "nnp") }

func (n nodeEnvironment) installSetuid() (err error) {
	from, err := os.Open(filepath.Join(n.Bin, "conformance", "nnp"))
	if err != nil {
		return fmt.Errorf("%w: build it with \"make conformance-parts\"", err)
	}
	defer from.Close()
	to, err := os.Create(n.Setuid())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), os.Chmod(n.Setuid(), os.ModeSetuid|os.ModeSetgid|0o755))
}
