package podgroup

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// What a gateway says when its service is late leaves open whether that has created a unit; that a
// service has no capacity, or that there are too many calls, does not.
func TestIsRefusal(t *testing.T) {
	codes := Codes{Exhausted: []string{"*Quota*"}, Away: []string{"Internal*"}, Refused: []string{"Invalid*"}}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a gateway that says when to try again": {codes.Classify(ActionCreate, "", 504, time.Minute, errors.New("late")), false},
		"a service that does":                   {codes.Classify(ActionCreate, "InternalError", 500, time.Minute, errors.New("late")), false},
		"no answer":                             {errdefs.AsUnavailable(errors.New("late")), false},
		"too many calls":                        {codes.Classify(ActionCreate, "", 429, 0, errors.New("throttled")), true},
		"a quota":                               {codes.Classify(ActionCreate, "QuotaExceeded", 400, 0, errors.New("no")), true},
		"a call before the creation":            {NotCreated(unavailable(errors.New("late"), 0)), true},
		"one that was wrapped since":            {fmt.Errorf("no pool: %w", NotCreated(errdefs.AsUnavailable(errors.New("late")))), true},
		"an invalid pod":                        {codes.Classify(ActionCreate, "InvalidCPU", 400, 0, errors.New("no")), true},
	} {
		if got := IsRefusal(test.err); got != test.want {
			t.Errorf("%s: it is a refusal: %v, want %v", name, got, test.want)
		}
	}
}

// That nothing was created does not change what an error means.
func TestNotCreated(t *testing.T) {
	cause := errdefs.AsConflict(errors.New("the volume is in use"))
	if err := NotCreated(cause); !errdefs.IsConflict(err) || !errors.Is(err, cause) || err.Error() != cause.Error() || isThrottled(err) {
		t.Errorf("it is %v", err)
	}
	if err := NotCreated(Throttled(errors.New("too many calls"), time.Minute)); !isThrottled(err) {
		t.Errorf("there were not too many calls: %v", err)
	}
	if err := NotCreated(nil); err != nil {
		t.Errorf("no error is %v", err)
	}
}
