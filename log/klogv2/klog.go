// Package klogv2 lets the library log through k8s.io/klog/v2, as Kubernetes'
// own programs do. Flags, output and verbosity are klog's.
//
// Debug lines need verbosity 4. Debug, info and error lines are structured
// (klog.InfoS, klog.ErrorS); klog has no structured warnings and fatal
// errors, so these are text that looks the same.
package klogv2

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// debugLevel is the verbosity from which on debug lines are written.
const debugLevel klog.Level = 4

var (
	_ log.Logger        = logger{}
	_ log.CallerSkipper = logger{}
)

type logger struct {
	fields *fields // nil means none
	err    error
	skip   int
}

// fields are put in order for the lines that are written: most loggers never
// write one.
type fields struct {
	before *fields
	added  log.Fields // never changed
}

// kv returns the keys in their order, each with its last value.
func (f *fields) kv() []any {
	merged := log.Fields{}
	for ; f != nil; f = f.before {
		for key, value := range f.added {
			if _, later := merged[key]; !later {
				merged[key] = value
			}
		}
	}
	kv := make([]any, 0, 2*len(merged)+2)
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		kv = append(kv, key, merged[key])
	}
	return kv
}

// New returns a logger that adds fields to each line; nil means none.
func New(fields log.Fields) log.Logger {
	return logger{}.WithFields(fields)
}

func (l logger) Debug(args ...any) {
	if v := klog.VDepth(1+l.skip, debugLevel); v.Enabled() {
		v.InfoSDepth(1+l.skip, fmt.Sprint(args...), l.all()...)
	}
}

func (l logger) Debugf(format string, args ...any) {
	if v := klog.VDepth(1+l.skip, debugLevel); v.Enabled() {
		v.InfoSDepth(1+l.skip, fmt.Sprintf(format, args...), l.all()...)
	}
}

func (l logger) Info(args ...any) {
	klog.InfoSDepth(1+l.skip, fmt.Sprint(args...), l.all()...)
}

func (l logger) Infof(format string, args ...any) {
	klog.InfoSDepth(1+l.skip, fmt.Sprintf(format, args...), l.all()...)
}

func (l logger) Warn(args ...any) {
	klog.WarningDepth(1+l.skip, l.text(fmt.Sprint(args...)))
}

func (l logger) Warnf(format string, args ...any) {
	klog.WarningDepth(1+l.skip, l.text(fmt.Sprintf(format, args...)))
}

func (l logger) Error(args ...any) {
	klog.ErrorSDepth(1+l.skip, l.err, fmt.Sprint(args...), l.fields.kv()...)
}

func (l logger) Errorf(format string, args ...any) {
	klog.ErrorSDepth(1+l.skip, l.err, fmt.Sprintf(format, args...), l.fields.kv()...)
}

func (l logger) Fatal(args ...any) {
	klog.FatalDepth(1+l.skip, l.text(fmt.Sprint(args...)))
}

func (l logger) Fatalf(format string, args ...any) {
	klog.FatalDepth(1+l.skip, l.text(fmt.Sprintf(format, args...)))
}

func (l logger) WithField(key string, value any) log.Logger {
	l.fields = &fields{l.fields, log.Fields{key: value}}
	return l
}

func (l logger) WithFields(added log.Fields) log.Logger {
	l.fields = &fields{l.fields, maps.Clone(added)}
	return l
}

func (l logger) WithError(err error) log.Logger {
	l.err = err
	return l
}

// WithCallerSkip implements log.CallerSkipper.
func (l logger) WithCallerSkip(calls int) log.Logger {
	l.skip += calls
	return l
}

// all returns the fields and the error, which klog.ErrorS takes on its own.
func (l logger) all() []any {
	if l.err == nil {
		return l.fields.kv()
	}
	return append(l.fields.kv(), "err", l.err)
}

// text renders a line like klog's structured ones.
func (l logger) text(msg string) string {
	var b strings.Builder
	b.WriteString(strconv.Quote(msg))
	kv := l.all()
	for i := 0; i+1 < len(kv); i += 2 {
		fmt.Fprintf(&b, " %v=", kv[i])
		switch value := kv[i+1].(type) {
		case string, error, fmt.Stringer:
			b.WriteString(strconv.Quote(fmt.Sprint(value)))
		default:
			fmt.Fprintf(&b, "%+v", value)
		}
	}
	return b.String()
}
