package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// attempts is how often a probe is tried that cannot be made.
	attempts = 3
	// maxOutput is how many bytes of an answer are kept.
	maxOutput = 10 << 10
)

// Options of a Prober. The zero value works, but for exec.
type Options struct {
	// Exec runs commands in containers. Without it, exec probes and hooks fail.
	Exec Exec
	// Version is the Kubernetes version, as major.minor, that requests name as
	// their user agent (kube-probe/1.36). Defaults to 1.36.
	Version string
}

// Prober makes probes and runs lifecycle handlers, each once. Its methods are
// safe for concurrent use, and hold nothing between calls.
type Prober struct {
	exec    Exec
	version string
	http    http.RoundTripper
}

// NewProber makes a Prober.
func NewProber(opts Options) *Prober {
	p := &Prober{exec: opts.Exec, version: cmp.Or(opts.Version, "1.36")}
	p.http = &http.Transport{
		DialContext: dial,
		// Containers have certificates of their own making, and a probe asks
		// only whether they serve.
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:  true, // each probe is a new connection: that is tested too
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // for servers that speak nothing else
	}
	return p
}

// Target is the container that a probe or a handler is for.
type Target struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	// ContainerID is the runtime's.
	ContainerID string
	// IP is the pod's. Requests to a pod that has none yet fail.
	IP string
}

// Probe makes one probe and returns its outcome with the container's output,
// in the kubelet's words. It ends after the probe's timeoutSeconds (1 by
// default), or when ctx does. A probe that cannot be made is tried three times;
// then its outcome is Unknown, and the error says why.
func (p *Prober) Probe(ctx context.Context, target Target, probe *corev1.Probe) (Outcome, string, error) {
	timeout := seconds(positive(probe.TimeoutSeconds, 1))
	var err error
	for range attempts {
		var outcome Outcome
		var output string
		outcome, output, err = p.once(ctx, target, probe, timeout)
		if ctx.Err() != nil { // the outcome says nothing about the container
			return Unknown, "", ctx.Err()
		}
		if err == nil {
			return outcome, output, nil
		}
	}
	return Unknown, "", err
}

func (p *Prober) once(ctx context.Context, target Target, probe *corev1.Probe, timeout time.Duration) (Outcome, string, error) {
	switch {
	case probe.Exec != nil:
		command := expandCommand(probe.Exec.Command, target.Container.Env)
		return p.probeExec(ctx, target.ContainerID, command, timeout)
	case probe.HTTPGet != nil:
		return p.probeHTTP(ctx, target, probe.HTTPGet, timeout)
	case probe.TCPSocket != nil:
		return p.probeTCP(ctx, target, probe.TCPSocket, timeout)
	case probe.GRPC != nil:
		return p.probeGRPC(ctx, target, probe.GRPC, timeout)
	}
	return Unknown, "", errors.New("the probe names no action: give it exec, httpGet, tcpSocket or grpc")
}

// dial opens a connection that, once closed, leaves nothing behind for long:
// thousands of probes would use up the ports of the node otherwise.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(1) // seconds; without it the probe works as well
	}
	return conn, err
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// positive returns n, or the default of the API where there is none.
func positive(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return otherwise
}
