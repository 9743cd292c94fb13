package log

import "os"

// nopLogger drops every line.
type nopLogger struct{}

func (nopLogger) Debug(...any)          {}
func (nopLogger) Debugf(string, ...any) {}
func (nopLogger) Info(...any)           {}
func (nopLogger) Infof(string, ...any)  {}
func (nopLogger) Warn(...any)           {}
func (nopLogger) Warnf(string, ...any)  {}
func (nopLogger) Error(...any)          {}
func (nopLogger) Errorf(string, ...any) {}

// Fatal ends the process all the same: a caller counts on not coming back.
func (nopLogger) Fatal(...any)          { os.Exit(1) }
func (nopLogger) Fatalf(string, ...any) { os.Exit(1) }

func (l nopLogger) WithField(string, any) Logger { return l }
func (l nopLogger) WithFields(Fields) Logger     { return l }
func (l nopLogger) WithError(error) Logger       { return l }
