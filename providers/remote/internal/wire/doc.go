// Package wire has what both ends of the protocol of providers/remote share: errors and
// the streams of sessions.
package wire
