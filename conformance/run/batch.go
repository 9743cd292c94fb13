package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// endTimeout is how long an interrupted spec may take to clean up.
const endTimeout = 90 * time.Second

// runBatch runs specs, one after the other, in a process of the suite. Each has
// a result; that of one that the process did not come to is notRun.
func runBatch(ctx context.Context, o options, names []string, number int) map[string]result {
	output := filepath.Join(o.results, "output", fmt.Sprintf("%03d.log", number))
	reportFile := filepath.Join(o.results, "output", fmt.Sprintf("%03d.json", number))
	_ = os.Remove(reportFile) // of an earlier run

	problem := runSuite(ctx, o, names, output, reportFile)
	results, err := readReport(reportFile, names)
	if problem == "" && err != nil {
		problem = err.Error()
	} else if problem == "" {
		problem = "the suite has no spec of this name"
	}
	for _, name := range names {
		r, ok := results[name]
		if !ok {
			r = result{name: name, state: notRun, message: problem}
		}
		if r.state == failed && r.message == "" {
			r.message = problem
		}
		r.output = output
		results[name] = r
	}
	return results
}

// runSuite returns why specs may lack a result, if it knows.
func runSuite(ctx context.Context, o options, names []string, output, reportFile string) string {
	log, err := os.Create(output)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := newWatchdog(o.timeout, func() {
		cancel(fmt.Errorf("the spec was interrupted after %v", o.timeout))
	})
	defer dog.stop()

	cmd := exec.CommandContext(ctx, o.e2e,
		"--kubeconfig="+o.kubeconfig,
		"--provider=skeleton",
		"--num-nodes=1",
		"--disable-log-dump",
		"--ginkgo.v", // with it, lines show where a spec ends
		"--ginkgo.no-color",
		"--ginkgo.timeout=24h", // the watchdog is stricter
		"--ginkgo.json-report="+reportFile,
		"--ginkgo.focus="+focusOf(names),
	)
	cmd.Stdout = &tee{file: log, dog: dog}
	cmd.Stderr = cmd.Stdout
	// On SIGINT, ginkgo ends the spec, lets it clean up and writes its report.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endTimeout
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx).Error()
	case err != nil:
		return fmt.Sprintf("the suite ended before this spec: %v: see %s", err, output)
	}
	return ""
}

// readReport reads what ginkgo says of the specs that ran.
func readReport(path string, names []string) (map[string]result, error) {
	results := map[string]result{}
	data, err := os.ReadFile(path)
	if err != nil {
		return results, fmt.Errorf("read the suite's report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil {
		return results, fmt.Errorf("read the suite's report %s: %w", path, err)
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := spec.FullText()
			if !wanted[name] || spec.StartTime.IsZero() {
				continue
			}
			r := result{name: name, seconds: spec.RunTime.Seconds(), message: message(spec)}
			switch {
			case spec.State.Is(types.SpecStatePassed):
				r.state, r.message = passed, ""
			case spec.State.Is(types.SpecStateSkipped) && r.message == "":
				continue // a spec that skips itself says why: this one came after an interrupt
			case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
				r.state = skipped
			default:
				r.state = failed
			}
			results[name] = r
		}
	}
	return results, nil
}

// message returns the first line that says something.
func message(spec types.SpecReport) string {
	text := spec.Failure.Message
	if spec.State.Is(types.SpecStateInterrupted) {
		return "" // the watchdog knows more
	}
	if spec.State.Is(types.SpecStatePanicked) {
		text = "panic: " + spec.Failure.ForwardedPanic
	}
	var parts []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		parts = append(parts, line)
		if !strings.HasSuffix(line, ":") { // the reason is in the next line
			break
		}
	}
	return strings.Join(parts, " ")
}

// tee writes to a file and feeds the watchdog.
type tee struct {
	file *os.File
	dog  *watchdog
	line []byte
}

func (t *tee) Write(p []byte) (int, error) {
	t.line = append(t.line, p...)
	for {
		line, rest, ok := bytes.Cut(t.line, []byte("\n"))
		if !ok {
			break
		}
		if bytes.HasPrefix(line, []byte("------------------------------")) {
			t.dog.reset()
		}
		t.line = append([]byte(nil), rest...)
	}
	return t.file.Write(p)
}

// watchdog calls a function when it is not reset for a time.
type watchdog struct {
	mu    sync.Mutex
	limit time.Duration
	timer *time.Timer
}

func newWatchdog(limit time.Duration, bark func()) *watchdog {
	return &watchdog{limit: limit, timer: time.AfterFunc(limit, bark)}
}

func (w *watchdog) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer.Stop() { // else it has barked already
		w.timer.Reset(w.limit)
	}
}

func (w *watchdog) stop() { w.timer.Stop() }
