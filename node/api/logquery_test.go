package api

import (
	"testing"
	"time"
)

// A number of seconds that asks for all of a log must not ask for none of it: providers
// make a time.Duration of it, which can hold no more than 292 years.
func TestSinceLongAgo(t *testing.T) {
	now := time.Now()
	for _, seconds := range []string{"1", "9999999999", "9223372036854775807"} {
		query, err := parseLogQuery("sinceSeconds="+seconds, now)
		if err != nil {
			t.Fatal(err)
		}
		if since := now.Add(-time.Duration(query.opts.SinceSeconds) * time.Second); !since.Before(now) {
			t.Errorf("sinceSeconds=%s asks for lines since %v, and now is %v", seconds, since, now)
		}
	}
}
