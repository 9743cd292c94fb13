// Command shim is the process that a container of package runtime runs under, as a program of
// its own.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

func main() { unix.Exit(shim.Main(os.Args)) }
