// Package integration tests the binary on a real control plane, with the build tag
// integration (make integration).
package integration
