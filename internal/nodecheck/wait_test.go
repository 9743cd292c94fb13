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
