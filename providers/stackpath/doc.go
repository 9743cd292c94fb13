// Package stackpath runs pods as workloads of StackPath Edge Compute, a service that ended in
// 2024. It is the smallest provider of a REST API, and stays as an example: see README.md.
package stackpath
