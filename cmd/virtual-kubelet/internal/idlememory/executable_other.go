//go:build !linux

package idlememory

func dropExecutable() error { return nil }
