package shard

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// DefaultLeaseDuration is how long a lease lasts that is not renewed.
const DefaultLeaseDuration = 15 * time.Second

// Config says what is shared, and with whom.
type Config struct {
	// Leases are those of one namespace.
	Leases Leases
	// Name is the beginning of the leases' names; members with the same one share
	// the same shards.
	Name string
	// Identity distinguishes this member from all others, also from those that a
	// restarted process has been before.
	Identity string
	// Shards is how many there are. Members that go by another number are waited
	// for until they have gone.
	Shards int

	// LeaseDuration is how long a lease lasts that is not renewed, in whole
	// seconds, and so about how long it takes until others go on with what a
	// process has left that was killed; zero means DefaultLeaseDuration. A member
	// that could not renew for two thirds of it stops.
	LeaseDuration time.Duration

	// Serve is called with the number of a shard when this member holds it, and
	// does what is to be done for it until ctx ends; the shard is not given to
	// others before it has returned, unless that takes longer than the lease. The
	// cause of the end (context.Cause) is node.ErrHandedOver where another member
	// goes on with the shard.
	Serve func(ctx context.Context, shard int)
}

func (c *Config) complete() error {
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	switch {
	case c.Leases == nil || c.Serve == nil || c.Identity == "":
		return errdefs.InvalidInput("shards need a client for leases, an identity, and a function that serves them: set all three")
	case len(validation.IsValidLabelValue(c.Name)) > 0 || len(validation.IsDNS1123Subdomain(c.Name)) > 0:
		return errdefs.InvalidInputf("shards cannot be named %q: use at most 63 lower case letters, digits, '-' and '.'", c.Name)
	case c.Shards < 1:
		return errdefs.InvalidInputf("there cannot be %d shards: at least one is needed", c.Shards)
	case c.LeaseDuration < 3*time.Second || c.LeaseDuration%time.Second != 0:
		return errdefs.InvalidInputf("a lease of %v is not possible: use whole seconds, at least 3", c.LeaseDuration)
	}
	return nil
}

// renewDeadline is how long a holder acts after the beginning of its last
// renewal.
func (c *Config) renewDeadline() time.Duration { return c.LeaseDuration * 2 / 3 }

// renewInterval is how old a renewal is when the next one is due.
func (c *Config) renewInterval() time.Duration { return c.LeaseDuration / 5 }

// retryPeriod is how often the leases are read.
func (c *Config) retryPeriod() time.Duration { return c.LeaseDuration * 2 / 15 }

// requestTimeout leaves time for a second attempt.
func (c *Config) requestTimeout() time.Duration { return c.renewDeadline() / 2 }
