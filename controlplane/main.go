package main

import (
	"fmt"
	"os"
)

func main() {
	os.Exit(run(os.Args))
}

// run dispatches to a component when its name is the first argument, and to
// our own commands otherwise. It returns the exit code.
func run(args []string) int {
	if len(args) > 1 {
		if component, ok := multicall[args[1]]; ok {
			os.Args = args[1:] // the components read their name and arguments there
			return component()
		}
	}
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		return 1
	}
	return 0
}
