// Command browser opens a page in Chromium, without a window, for tests:
//
//	browser [flags] URL
//
// It waits until the page has shown the texts of -text, one after the other, without loading it
// again, and prints a Report as JSON; each text that it has seen is a line on standard error. It
// exits with 1 if the page cannot be opened, or does not show them in time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
)

// Report is what was seen.
type Report struct {
	shown
	// Complaints are the errors in the browser's log, such as of scripts that a
	// Content-Security-Policy has refused.
	Complaints []string `json:"complaints"`
}

// shown is what can be seen of the page.
type shown struct {
	// Text is what the page shows.
	Text string `json:"text"`
	// Width is that of the window in pixels, ScrollWidth that of what is in it: it has to be
	// scrolled sideways if that is more.
	Width       int64 `json:"width"`
	ScrollWidth int64 `json:"scrollWidth"`
}

type texts []string

func (t *texts) String() string         { return strings.Join(*t, ", ") }
func (t *texts) Set(value string) error { *t = append(*t, value); return nil }

type options struct {
	width, height int64
	noScripts     bool
	screenshot    string
	timeout       time.Duration
	texts         texts
}

func main() {
	var o options
	flag.Int64Var(&o.width, "width", 1200, "width of the window in pixels")
	flag.Int64Var(&o.height, "height", 900, "height of the window in pixels")
	flag.BoolVar(&o.noScripts, "no-scripts", false, "run none of the page's scripts")
	flag.StringVar(&o.screenshot, "screenshot", "", "file to write a picture of the page to (PNG)")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "for how long to wait for the texts")
	flag.Var(&o.texts, "text", "text that the page shows, sooner or later; may be repeated, in the order in which they appear")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "browser: want one URL")
		os.Exit(2)
	}
	report, err := look(flag.Arg(0), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

// look opens the page.
func look(url string, o options) (*Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	// Its sandbox does not work for root, and the page is one of ours.
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(int(o.width), int(o.height)))...)
	defer cancel()
	report := &Report{Complaints: []string{}}
	var mu sync.Mutex
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		if added, ok := event.(*log.EventEntryAdded); ok && added.Entry.Level == log.EntryLevelError {
			mu.Lock()
			defer mu.Unlock()
			report.Complaints = append(report.Complaints, added.Entry.Text)
		}
	}))
	defer cancel()
	scripts := func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: o.noScripts})
		return none, err
	}
	err := chromedp.Do(ctx, scripts, chromedp.EmulateViewport(o.width, o.height), chromedp.Navigate(url))
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", url, err)
	}
	if err := o.await(ctx, report); err != nil {
		return nil, err
	}
	if o.screenshot != "" {
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		if err != nil {
			return nil, fmt.Errorf("cannot take a picture: %w", err)
		}
		if err := os.WriteFile(o.screenshot, picture, 0o644); err != nil {
			return nil, err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return report, nil
}

// await reads the page until it has shown all texts.
func (o *options) await(ctx context.Context, report *Report) error {
	for left := o.texts; ; {
		shown, err := chromedp.Run(ctx, chromedp.Evaluate[shown](
			`({text: document.body.innerText, width: document.documentElement.clientWidth, scrollWidth: document.documentElement.scrollWidth})`))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot read the page: %w", err)
		}
		if err == nil {
			report.shown = shown
		}
		for len(left) > 0 && strings.Contains(report.Text, left[0]) {
			fmt.Fprintf(os.Stderr, "seen: %s\n", left[0])
			left = left[1:]
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the page does not show %q (%w), but\n%s", left[0], ctx.Err(), report.Text)
		}
	}
}
