package gauge

import (
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/kubernetes"
)

// Request is a kind of request to the API server.
type Request struct{ Verb, Resource string } // a subresource is part of Resource, as in "pods/status"

func (r Request) String() string { return r.Verb + " " + r.Resource }

// Requests counts requests by their kind.
type Requests map[Request]int

// ReadRequests reads how many requests of each kind the API server has answered.
// It has to be one alone.
func ReadRequests(ctx context.Context, client kubernetes.Interface) (Requests, error) {
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	families, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	requests := Requests{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		r := Request{Verb: label(metric, "verb"), Resource: label(metric, "resource")}
		if sub := label(metric, "subresource"); sub != "" {
			r.Resource += "/" + sub
		}
		requests[r] += int(metric.GetCounter().GetValue())
	}
	return requests, nil
}

// Since returns what has come to requests that were read earlier.
func (r Requests) Since(earlier Requests) Requests {
	more := Requests{}
	for kind, count := range r {
		if n := count - earlier[kind]; n > 0 {
			more[kind] = n
		}
	}
	return more
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
