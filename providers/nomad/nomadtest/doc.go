// Package nomadtest is a fake of Nomad's HTTP API on a grouptest.World. It knows the
// parameters, types and limits of the requests that a virtual kubelet makes, and refuses
// all others.
package nomadtest
