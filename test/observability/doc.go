// Package observability tests what deploy/ has for Prometheus and Grafana: that
// each expression can be parsed, and asks only for metrics and labels that a
// virtual-kubelet has. It is a module of its own for the sake of the parser.
package observability
