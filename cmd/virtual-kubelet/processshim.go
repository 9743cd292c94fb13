//go:build embedded_shim && (!chosen_providers || provider_process)

package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

// The command of providers/process/runtime/shim, which the Makefile builds before this program.
//
//go:embed shim.gz
var compressedShim []byte

func init() { shimProgram = uncompressedShim }

func uncompressedShim() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressedShim))
	if err != nil {
		return nil, fmt.Errorf("the program of containers' shims in this binary: %w", err)
	}
	program, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("the program of containers' shims in this binary: %w", err)
	}
	return program, nil
}
