// Package chart tests the chart of charts/virtual-kubelet with Helm 3 and 4. "make
// integration" builds them, and runs it.
package chart
