package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Checks are the mistakes that the checks of a provider's settings have found. The zero value
// has none.
type Checks []error

// That adds a mistake unless ok.
func (c *Checks) That(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

// Quantity sets the quantity of a field that is nil to otherwise, and adds a mistake if it is
// negative. Without otherwise it stays nil.
func (c *Checks) Quantity(field string, quantity **resource.Quantity, otherwise string) {
	if *quantity == nil {
		if otherwise == "" {
			return
		}
		preset := resource.MustParse(otherwise)
		*quantity = &preset
	}
	c.That((*quantity).Sign() >= 0, "%s: %s is negative", field, *quantity)
}

// Err returns an error that names all mistakes, or nil if there are none.
func (c Checks) Err() error { return Join(c...) }

// Invalid returns an error of class InvalidInput that says whose configuration err is about;
// nil if err is nil.
func Invalid(provider string, err error) error {
	if err == nil {
		return nil
	}
	return errdefs.InvalidInputf("%s config: %w", provider, err)
}
