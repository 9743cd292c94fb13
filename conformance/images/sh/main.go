// Command sh is /bin/sh of the images: busybox's shell, whose messages the suite
// knows, unless the environment has a variable whose name is no identifier.
//
// The suite makes such names of the keys of ConfigMaps and looks for them with
// env. Debian's busybox does not hand them to programs; that of busybox's own
// image does, for its shell runs env itself. Bash keeps them.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

func main() {
	shell := "/bin/busybox"
	if slices.ContainsFunc(os.Environ(), isOdd) {
		shell = "/bin/bash"
	}
	err := syscall.Exec(shell, os.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "%s: run %s: %v\n", os.Args[0], shell, err)
	os.Exit(127)
}

func isOdd(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return true
		}
	}
	return false
}
