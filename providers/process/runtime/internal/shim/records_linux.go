package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The files of a container's directory. Each is written as a whole or not at all.
//
// The order is the promise that nothing runs twice: IntentFile is there before a
// shim can be, StartedFile before the command runs, and ExitFile after the last
// process has ended. LockFile is locked as long as a shim is there or may come,
// or an init that may become a command: the runtime locks it, the shim inherits
// the lock, and its inits do, from the moment they are forked.
const (
	SpecFile    = "spec.json"
	IntentFile  = "intent.json"
	StartedFile = "started.json"
	ExitFile    = "exit.json"
	LockFile    = "shim.lock"
	SocketFile  = "shim.sock"
	LogFile     = "shim.log"
)

// Intent says that a start was begun, and in which run of the machine.
type Intent struct {
	BootID string    `json:"bootID"`
	Time   time.Time `json:"time"`
}

// Started says which process is the container's.
type Started struct {
	// PID and Start are those of the command, ShimPID and ShimStart of the shim.
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"`
	ShimPID   int       `json:"shimPID"`
	ShimStart uint64    `json:"shimStart"`
	Time      time.Time `json:"time"`
}

// Exit says how a container ended.
type Exit struct {
	Code int `json:"code"`
	// Signal is the one that killed it, or zero.
	Signal  int       `json:"signal,omitempty"`
	OOM     bool      `json:"oom,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// Reasons of an Exit.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonOOMKilled  = "OOMKilled"
	ReasonStartError = "StartError"
	ReasonUnknown    = "ContainerStatusUnknown"
)

// StartErrorCode is the exit code of what could not be started, as it is with
// other runtimes.
const StartErrorCode = 128

// WriteRecord writes v to a file of a directory, as a whole.
func WriteRecord(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("record %s: %w", name, err)
	}
	return WriteFile(dir, name, data)
}

// WriteFile writes a file of a directory as a whole: a reader, even after a
// crash, sees all of data or what was there before.
func WriteFile(dir, name string, data []byte) error {
	tmp, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return fmt.Errorf("record %s: %w", name, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("record %s in %s: %w", name, dir, err)
	}
	return SyncDir(dir)
}

// reservedSize is more than the record of an end takes. That of a start that has failed may
// be larger, by its message.
const reservedSize = 512

func reservedFile(dir, name string) string { return filepath.Join(dir, "."+name+".reserved") }

// reserve takes the place on the disk that writeReserved needs.
func reserve(dir, name string) error {
	if err := os.WriteFile(reservedFile(dir, name), bytes.Repeat([]byte(" "), reservedSize), 0o600); err != nil {
		return fmt.Errorf("reserve room for record %s: %w", name, err)
	}
	return nil
}

// writeReserved is WriteRecord in the place that reserve has taken: it needs no other, unless
// the file system writes nothing in place.
func writeReserved(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("record %s: %w", name, err)
	}
	data = append(data, bytes.Repeat([]byte(" "), max(0, reservedSize-len(data)))...)
	file, err := os.OpenFile(reservedFile(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes sure that the names in a directory survive a crash of the machine.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

// ReadRecord reads what WriteRecord wrote. That there is no such file is an
// error that is os.ErrNotExist.
func ReadRecord(dir, name string, v any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("record %s in %s: %w", name, dir, err)
	}
	return nil
}

// HasRecord reports whether a file is in a directory.
func HasRecord(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// ErrRuns says that there is a shim, or that one is being started, or that what
// one was starting has not ended yet.
var ErrRuns = errors.New("its shim runs")

// Lock takes the lock of a container's directory, which says that there is no shim,
// and nothing but commands of one. A shim that is given the file inherits the lock.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrRuns
		}
		return nil, err
	}
	return f, nil
}
