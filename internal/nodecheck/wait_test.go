package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewForClient(nil, Options{Patience: 2 * time.Minute})
		tries := 0
		if err := n.Poll(t.Context(), func(context.Context) error {
			if tries++; tries < 3 {
				return fmt.Errorf("try %d", tries)
			}
			return nil
		}); err != nil || tries != 3 {
			t.Errorf("got %v after %d tries", err, tries)
		}

		wrong := errors.New("the pod is not there")
		err := n.Poll(t.Context(), func(context.Context) error { return wrong })
		if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "not within 2m0s") {
			t.Errorf("got %v", err)
		}

		for _, hopeless := range []error{
			final{wrong},
			apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node", nil),
			apierrors.NewGenericServerResponse(http.StatusNotImplemented, "get", schema.GroupResource{}, "", "", 0, true),
		} {
			began := time.Now()
			if err := n.Poll(t.Context(), func(context.Context) error { return hopeless }); !errors.Is(err, hopeless) || time.Since(began) > 0 {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
		}
	})
}

// A service whose answers take long has a second try, and one that is wrong is not waited for
// as long as for what is to come.
func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewForClient(nil, Options{Patience: time.Hour})
		for name, c := range map[string]struct {
			took time.Duration
			good int // the first answer that is right
			want bool
		}{
			"slow, and wrong at first": {30 * time.Second, 2, true},
			"wrong for some seconds":   {time.Second, 3, true},
			"wrong":                    {time.Second, 1000, false},
		} {
			tries, began := 0, time.Now()
			wanted := settling(func(string) error {
				if tries++; tries < c.good {
					return errors.New("wrong")
				}
				return nil
			})
			err := n.Poll(t.Context(), func(context.Context) error {
				time.Sleep(c.took)
				return wanted("")
			})
			if (err == nil) != c.want || time.Since(began) > 2*time.Minute {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}
