package api

import (
	"math"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxSinceSeconds is what a time.Duration can hold, some 292 years: more would become a
// time in the future where a provider makes one of it.
const maxSinceSeconds = math.MaxInt64 / int64(time.Second)

// logQuery is what the query of a request for logs asks for.
type logQuery struct {
	opts ContainerLogOpts
	// stream is "Stdout", "Stderr", or empty for both.
	stream string
	// nothing: not a single line, of now or later.
	nothing bool
}

// parseLogQuery reads a query with the conversions of the Kubernetes API (v1's
// PodLogOptions) and checks it by the rules of its validation.
func parseLogQuery(raw string, now time.Time) (logQuery, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return logQuery{}, errLogQuery
	}
	// The query parameter of older API servers.
	if tail := query.Get("tail"); tail != "" {
		query["tailLines"] = []string{tail}
		if tail == "all" {
			delete(query, "tailLines")
		}
	}
	var opts ContainerLogOpts
	opts.Follow = boolParam(query, "follow")
	opts.Previous = boolParam(query, "previous")
	opts.Timestamps = boolParam(query, "timestamps")

	tail, err := intParam(query, "tailLines", 0)
	if err != nil {
		return logQuery{}, err
	}
	limit, err := intParam(query, "limitBytes", 1)
	if err != nil {
		return logQuery{}, err
	}
	seconds, err := intParam(query, "sinceSeconds", 1)
	if err != nil {
		return logQuery{}, err
	}
	since, err := timeParam(query, "sinceTime")
	if err != nil {
		return logQuery{}, err
	}
	stream, err := streamParam(query)
	if err != nil {
		return logQuery{}, err
	}
	if tail.invalid || limit.invalid || seconds.invalid || seconds.given && since != nil || tail.given && stream != "" {
		return logQuery{}, errLogRequest
	}

	opts.Tail, opts.LimitBytes, opts.SinceSeconds = tail.value, limit.value, int(min(int64(seconds.value), maxSinceSeconds))
	if since != nil {
		opts.SinceTime = *since
	}
	if tail.given && tail.value == 0 {
		if !opts.Follow {
			return logQuery{opts: opts, stream: stream, nothing: true}, nil
		}
		opts.SinceSeconds, opts.SinceTime = 0, now
	}
	return logQuery{opts: opts, stream: stream}, nil
}

type intValue struct {
	value          int
	given, invalid bool
}

// intParam fails on what is no number; one that is too small is invalid.
func intParam(query url.Values, name string, least int64) (intValue, error) {
	values := query[name]
	var n *int64
	if err := runtime.Convert_Slice_string_To_Pointer_int64(&values, &n, nil); err != nil {
		return intValue{}, errLogQuery
	}
	if n == nil {
		return intValue{}, nil
	}
	return intValue{value: int(min(*n, math.MaxInt)), given: true, invalid: *n < least}, nil
}

func boolParam(query url.Values, name string) bool {
	values := query[name]
	var b bool
	_ = runtime.Convert_Slice_string_To_bool(&values, &b, nil) // any value is a boolean
	return b
}

// streamParam returns an empty string for both streams.
func streamParam(query url.Values) (string, error) {
	values, ok := query["stream"]
	if !ok {
		return "", nil
	}
	switch values[0] {
	case v1.LogStreamAll:
		return "", nil
	case v1.LogStreamStdout, v1.LogStreamStderr:
		return values[0], nil
	default:
		return "", errLogRequest
	}
}

// timeParam returns nil for a parameter that is absent or empty.
func timeParam(query url.Values, name string) (*time.Time, error) {
	values, ok := query[name]
	if !ok {
		return nil, nil
	}
	var t metav1.Time
	if err := metav1.Convert_Slice_string_To_v1_Time(&values, &t, nil); err != nil {
		return nil, errLogQuery
	}
	if t.IsZero() {
		return nil, nil
	}
	return &t.Time, nil
}
