package podlifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// lateLogger is a logger with further fields, which are put together with the first line that is
// written: most visits of a pod write none.
type lateLogger struct {
	within leveledLogger
	// Of a pod, or of one field; not the pod itself, which who keeps the logger would keep in memory.
	namespace, name, uid string
	key                  string // empty: of a pod
	value                any

	once sync.Once
	made log.Logger
}

// leveledLogger is a logger that knows whether debug lines are written, as those of package log/slog do.
type leveledLogger interface {
	log.Logger
	DebugEnabled() bool
}

// loggerOf returns logger with the names of a pod: at once where it is not of log/slog, since another one may
// have to be seen as what it is. That of a span makes room for the one of a span within, and that of logrus
// takes who calls it for the origin of a line.
func loggerOf(logger log.Logger, pod *corev1.Pod) log.Logger {
	within, ok := logger.(leveledLogger)
	if !ok {
		return logger.WithFields(namesOf(pod.Namespace, pod.Name, string(pod.UID)))
	}
	return &lateLogger{within: within, namespace: pod.Namespace, name: pod.Name, uid: string(pod.UID)}
}

func namesOf(namespace, name, uid string) log.Fields {
	return log.Fields{"namespace": namespace, "pod": name, "uid": uid}
}

// logger returns the logger with the fields.
func (l *lateLogger) logger() log.Logger {
	l.once.Do(func() {
		within := log.Logger(l.within)
		if late, ok := within.(*lateLogger); ok {
			within = late.logger()
		}
		if l.key != "" {
			l.made = within.WithField(l.key, l.value)
		} else {
			l.made = within.WithFields(namesOf(l.namespace, l.name, l.uid))
		}
	})
	return l.made
}

// line returns the logger for a method of this one, which is not where the line comes from.
func (l *lateLogger) line() log.Logger { return log.WithCallerSkip(l.logger(), 1) }

// DebugEnabled implements leveledLogger.
func (l *lateLogger) DebugEnabled() bool { return l.within.DebugEnabled() }

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

var (
	_ leveledLogger     = (*lateLogger)(nil)
	_ log.CallerSkipper = (*lateLogger)(nil)
)
