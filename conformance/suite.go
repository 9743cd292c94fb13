//go:build e2e

// This file makes the suite a dependency of the module. Nothing is built with
// its tag.

package main

import _ "k8s.io/kubernetes/test/e2e"
