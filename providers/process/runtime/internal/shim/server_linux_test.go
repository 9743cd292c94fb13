package shim

import (
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// A connection that cannot be accepted, for want of files, say, is not the last one.
func TestAcceptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{unix.EMFILE, unix.ECONNABORTED, net.ErrClosed}
		(&server{}).accept(func() (*net.UnixConn, error) {
			err := answers[0]
			answers = answers[1:]
			return nil, err
		})
		if len(answers) > 0 {
			t.Errorf("it ends before %v", answers)
		}
	})
}

// A process outside of the container may hold on to all of its outputs: the end is
// reported all the same.
func TestDrainOfOutputsThatAreHeldOpen(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &server{outputs: []*output{newOutput(nil, "stdout"), newOutput(nil, "stderr")}}
		s.drain()
	})
}
