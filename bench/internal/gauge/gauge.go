// Package gauge reads what a process and the API server have used.
package gauge

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// tick is the unit of /proc/PID/stat: USER_HZ is 100 on all of Linux' platforms
// that Go supports.
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process has used, in user and kernel
// mode, to 10 ms.
func CPU(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The command in parentheses may hold anything; what follows it is plain.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: unknown format %q", path, data)
	}
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// Memory is what a process has in memory, in bytes.
type Memory struct{ Now, Peak int64 }

// RSS reads the memory of a process.
func RSS(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		for key, field := range map[string]*int64{"VmRSS:": &m.Now, "VmHWM:": &m.Peak} {
			if text, ok := strings.CutPrefix(lines.Text(), key); ok {
				kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
				if err != nil {
					return Memory{}, fmt.Errorf("%s: %w", path, err)
				}
				*field = kib << 10
			}
		}
	}
	return m, lines.Err()
}

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
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
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
