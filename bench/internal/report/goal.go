package report

import (
	"fmt"
	"math"
)

// Goal is a bound of a measure.
type Goal struct {
	Limit float64 `json:"limit"`
	// OfFloor means that Limit is a multiple of the floor in the same run.
	OfFloor bool `json:"ofFloor,omitempty"`
	// Least means that the measure must not be less, rather than more.
	Least bool `json:"least,omitempty"`
}

// AtMost is a goal that does not depend on the machine.
func AtMost(limit float64) *Goal { return &Goal{Limit: limit} }

// AtLeast is its counterpart.
func AtLeast(limit float64) *Goal { return &Goal{Limit: limit, Least: true} }

// AtMostOfFloor is a goal beside the floor.
func AtMostOfFloor(ratio float64) *Goal { return &Goal{Limit: ratio, OfFloor: true} }

// AtLeastOfFloor is its counterpart.
func AtLeastOfFloor(ratio float64) *Goal { return &Goal{Limit: ratio, OfFloor: true, Least: true} }

func (g *Goal) String() string {
	if g == nil {
		return ""
	}
	sign, unit := "≤", ""
	if g.Least {
		sign = "≥"
	}
	if g.OfFloor {
		unit = " × floor"
	}
	return fmt.Sprintf("%s %g%s", sign, g.Limit, unit)
}

// bound is the value that must not be exceeded, or be gone below.
func (g *Goal) bound(floor spread) (float64, bool) {
	if g == nil || g.OfFloor && floor.count == 0 {
		return 0, false
	}
	if g.OfFloor {
		return g.Limit * floor.median, true
	}
	return g.Limit, true
}

// verdict reports whether a median meets the goal: "yes", "no", or nothing where
// there is no value. As in the table, less than a hundredth is nothing.
func (g *Goal) verdict(value, floor spread) string {
	bound, ok := g.bound(floor)
	if !ok || value.count == 0 {
		return ""
	}
	if cents(value.median) == cents(bound) || (value.median < bound) != g.Least {
		return "yes"
	}
	return "no"
}

func cents(v float64) float64 { return math.Round(v * 100) }
