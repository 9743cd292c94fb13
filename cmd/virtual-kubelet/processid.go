package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// processID identifies a process in the cluster. By it another process of the same
// machine or pod can find out that the process has ended. Unknown parts are empty.
type processID struct {
	host    string // the only part that may have _ in it
	boot    string // of the machine
	space   string // the namespace of process IDs
	pid     string
	started string // of the process, in ticks since boot
	pod     string // the UID of the pod in which it runs
	random  string
}

const processIDParts = 7

func newProcessID(podUID string) processID {
	id := processID{host: hostname(), random: string(uuid.NewUUID()), pid: strconv.Itoa(os.Getpid()), pod: podUID}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		id.boot = strings.TrimSpace(string(boot))
	}
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		id.space = strings.TrimSuffix(strings.TrimPrefix(space, "pid:["), "]")
	}
	id.started, _ = startOf(procfs, id.pid)
	return id
}

// String returns the form that leases have.
func (id processID) String() string {
	return strings.Join([]string{id.host, id.boot, id.space, id.pid, id.started, id.pod, id.random}, "_")
}

func parseProcessID(text string) (id processID, ok bool) {
	parts := strings.Split(text, "_")
	at := len(parts) - processIDParts + 1 // where the host's name has ended
	if at < 1 {
		return id, false
	}
	host, parts := strings.Join(parts[:at], "_"), parts[at:]
	return processID{host, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]}, true
}

// processHasEnded returns a function that reports whether the process with an ID is
// known to have ended: one of the same machine and namespace of process IDs that is
// not there any more, or one of an earlier container of the same pod.
func processHasEnded(podUID string) func(id string) bool {
	us := newProcessID(podUID)
	return func(text string) bool {
		other, ok := parseProcessID(text)
		if !ok || us.boot == "" || us.space == "" || other.boot != us.boot {
			return false
		}
		if other.space != us.space {
			return us.pod != "" && other.pod == us.pod // a container is restarted after its end
		}
		if other.started == "" || us.started == "" {
			return false
		}
		started, err := startOf(procfs, other.pid)
		return errors.Is(err, os.ErrProcessDone) || err == nil && started != other.started
	}
}

const procfs = "/proc"

// startOf returns when a process has started, in ticks since boot, and an error of
// os.ErrProcessDone if there is none, or only what is left of one that has ended.
func startOf(proc, pid string) (string, error) {
	stat, err := os.ReadFile(filepath.Join(proc, pid, "stat"))
	if errors.Is(err, fs.ErrNotExist) && hasNoProcess(pid) {
		return "", os.ErrProcessDone
	}
	if err != nil {
		return "", err
	}
	// The second field is the name of the program, in parentheses, which may hold
	// anything; the state is the third, and the start the 22nd.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 20 {
		return "", errors.New("the kernel does not report when the process has started")
	}
	if state := string(fields[0]); state == "Z" || state == "X" {
		return "", os.ErrProcessDone
	}
	return string(fields[19]), nil
}

// hasNoProcess reports whether the kernel knows no process with the ID. Where /proc is
// mounted with hidepid, processes of other users are not there.
func hasNoProcess(pid string) bool {
	number, err := strconv.Atoi(pid)
	if err != nil || number <= 0 {
		return false
	}
	process, err := os.FindProcess(number)
	if err != nil {
		return false
	}
	defer process.Release()
	return errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
