package shim

import (
	"testing"
	"testing/synctest"
)

// A process outside of the container may hold on to all of its outputs: the end is
// reported all the same.
func TestDrainOfOutputsThatAreHeldOpen(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &server{outputs: []*output{newOutput(nil, "stdout"), newOutput(nil, "stderr")}}
		s.drain()
	})
}
