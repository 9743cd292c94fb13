// Package logrus lets the library log through github.com/sirupsen/logrus. What
// is written where, and from which level on, stays a matter of the
// logrus.Logger behind the entry.
package logrus

import (
	"github.com/sirupsen/logrus"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

var _ log.Logger = adapter{}

// adapter embeds the entry rather than calling it: logrus takes the first call
// outside of its own package for the origin of a line.
type adapter struct{ *logrus.Entry }

// FromLogrus returns a logger that logs with entry, its fields included. A nil
// entry stands for logrus' standard logger.
func FromLogrus(entry *logrus.Entry) log.Logger {
	if entry == nil {
		entry = logrus.NewEntry(logrus.StandardLogger())
	}
	return adapter{entry}
}

// WithField returns a logger that adds the key to each line.
func (a adapter) WithField(key string, value any) log.Logger {
	return adapter{a.Entry.WithField(key, value)}
}

// WithFields returns a logger that adds the fields to each line.
func (a adapter) WithFields(fields log.Fields) log.Logger {
	return adapter{a.Entry.WithFields(logrus.Fields(fields))}
}

// WithError returns a logger that adds err to each line, by logrus.ErrorKey.
func (a adapter) WithError(err error) log.Logger {
	return adapter{a.Entry.WithError(err)}
}
