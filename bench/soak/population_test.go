package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API server that is short of CPU for a while does not end the coming and going of pods; one that stays so does.
func TestPatiently(t *testing.T) {
	busy := errors.New("etcdserver: request timed out")
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")
	for name, test := range map[string]struct {
		answers []error // the last one again and again
		want    error
	}{
		"busy for a while": {[]error{busy, busy, nil}, nil},
		"busy":             {[]error{busy}, busy},
		"an answer":        {[]error{gone, busy}, gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := test.answers
				err := patiently(t.Context(), func() error {
					err := answers[0]
					answers = answers[min(1, len(answers)-1):]
					return err
				})
				if !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := patiently(ctx, func() error { return busy }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the end got %v", err)
		}
	})
}
