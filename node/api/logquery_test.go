package api

import (
	"net/url"
	"testing"
	"time"
)

func FuzzParseLogQuery(f *testing.F) {
	for _, query := range []string{
		"", "follow=true&tailLines=0", "tail=all", "tail=5&tailLines=x", "limitBytes=0", "sinceSeconds=1&sinceTime=2026-11-21T02:03:04Z",
		"sinceTime=null", "tailLines=9223372036854775807", "stream=All", "%zz", "a=b;c=d",
	} {
		f.Add(query)
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, raw string) {
		values, _ := url.ParseQuery(raw)
		got, err := parseLogQuery(values, now)
		if err != nil {
			if status := err.(statusError).status; status != 400 && status != 422 || got != (logQuery{}) {
				t.Fatalf("%q: %+v, %v", raw, got, err)
			}
			return
		}
		opts := got.opts
		if opts.Tail < 0 || opts.LimitBytes < 0 || opts.SinceSeconds < 0 {
			t.Errorf("%q: a negative number in %+v", raw, opts)
		}
		if opts.SinceSeconds > 0 && !opts.SinceTime.IsZero() {
			t.Errorf("%q: both since in %+v", raw, opts)
		}
		if got.nothing && opts.Follow {
			t.Errorf("%q: follows nothing", raw)
		}
	})
}
