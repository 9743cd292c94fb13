package podlifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// lateLogger is a logger with further fields, which are put together with the first line that is
// written: most visits of a pod write none.
type lateLogger struct {
	within log.Logger
	// Of a pod, or of one field; not the pod itself, which who keeps the logger would keep in memory.
	namespace, name, uid string
	key                  string // empty: of a pod
	value                any

	once sync.Once
	made log.Logger
}

// loggerOf returns logger with the names of a pod.
func loggerOf(logger log.Logger, pod *corev1.Pod) log.Logger {
	return &lateLogger{within: logger, namespace: pod.Namespace, name: pod.Name, uid: string(pod.UID)}
}

// logger returns the logger with the fields.
func (l *lateLogger) logger() log.Logger {
	l.once.Do(func() {
		within := l.within
		if late, ok := within.(*lateLogger); ok {
			within = late.logger()
		}
		if l.key != "" {
			l.made = within.WithField(l.key, l.value)
		} else {
			l.made = within.WithFields(log.Fields{"namespace": l.namespace, "pod": l.name, "uid": l.uid})
		}
	})
	return l.made
}

// line returns the logger for a method of this one, which is not where the line comes from.
func (l *lateLogger) line() log.Logger { return log.WithCallerSkip(l.logger(), 1) }

// DebugEnabled reports whether debug lines may be written. Loggers of package log/slog know it.
func (l *lateLogger) DebugEnabled() bool {
	knows, ok := l.within.(interface{ DebugEnabled() bool })
	return !ok || knows.DebugEnabled()
}

func (l *lateLogger) Debug(args ...any) {
	if l.DebugEnabled() {
		l.line().Debug(args...)
	}
}

func (l *lateLogger) Debugf(format string, args ...any) {
	if l.DebugEnabled() {
		l.line().Debugf(format, args...)
	}
}

func (l *lateLogger) Info(args ...any)             { l.line().Info(args...) }
func (l *lateLogger) Infof(f string, args ...any)  { l.line().Infof(f, args...) }
func (l *lateLogger) Warn(args ...any)             { l.line().Warn(args...) }
func (l *lateLogger) Warnf(f string, args ...any)  { l.line().Warnf(f, args...) }
func (l *lateLogger) Error(args ...any)            { l.line().Error(args...) }
func (l *lateLogger) Errorf(f string, args ...any) { l.line().Errorf(f, args...) }
func (l *lateLogger) Fatal(args ...any)            { l.line().Fatal(args...) }
func (l *lateLogger) Fatalf(f string, args ...any) { l.line().Fatalf(f, args...) }

func (l *lateLogger) WithField(key string, value any) log.Logger {
	if key == "" {
		return l.logger().WithField(key, value)
	}
	return &lateLogger{within: l, key: key, value: value}
}

func (l *lateLogger) WithFields(fields log.Fields) log.Logger { return l.logger().WithFields(fields) }
func (l *lateLogger) WithError(err error) log.Logger          { return l.logger().WithError(err) }

// WithCallerSkip implements log.CallerSkipper.
func (l *lateLogger) WithCallerSkip(calls int) log.Logger {
	return log.WithCallerSkip(l.logger(), calls)
}

var _ log.CallerSkipper = (*lateLogger)(nil)
