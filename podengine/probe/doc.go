// Package probe finds out whether containers are alive and ready, and runs the
// handlers of their lifecycle.
//
// A Prober does one thing once: an exec, httpGet, tcpSocket or grpc probe, or a
// postStart or preStop hook. A Manager runs the probes of many pods at their
// times, counts their outcomes against their thresholds, and says what follows
// for each container: started, ready, or to be killed. What is done about it is
// the caller's matter.
package probe
