//go:build !linux

package relay

import (
	"context"
	"errors"
)

// Relay is a relay with its process, which there is on Linux only.
type Relay struct{}

// MaybeRelay does nothing.
func MaybeRelay() {}

// Start returns an error.
func Start(context.Context, string, string) (*Relay, error) {
	return nil, errors.New("there is a relay on Linux only")
}

// Endpoint is empty.
func (*Relay) Endpoint() string { return "" }

// Close does nothing.
func (*Relay) Close() error { return nil }
