// Package eviction decides which pods a machine that runs out of memory, disk or
// process IDs ends, as a kubelet does
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/),
// and which have used more local storage than they may. It only decides: others
// observe the machine and end pods.
package eviction
