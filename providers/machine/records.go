package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// record is what lasts of a machine beside its tags. There is one from the time at which its
// agent was given a certificate: before that no pod can be in the machine. Of one in reserve there
// is one, without a Key, before it is made.
type record struct {
	Name string `json:"name"`
	// Tags are the driver's and, of a machine that was in reserve, those of its pod.
	Tags    map[string]string `json:"tags"`
	Created time.Time         `json:"created"`
	// Slot is the name that the driver would have been asked for, if the machine was in reserve
	// when the pod got it.
	Slot string `json:"slot,omitempty"`
	// Address is the last that was known, and Port that at which its agent listens; 0 is the
	// configuration's.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	// Key is a digest of the agent's public key: the token is worth nothing from then on.
	Key string `json:"key,omitempty"`
	// Sent reports that the pod may have reached the agent.
	Sent bool `json:"sent,omitempty"`
	// Given reports that the agent has accepted the pod.
	Given bool `json:"given,omitempty"`
	// TakenAt is when the driver takes the machine, whose pod is ended before; zero if it does not.
	TakenAt time.Time `json:"takenAt,omitzero"`
	// Replaced is set once another machine is to have the pod, and Past of that one.
	Replaced *replaced `json:"replaced,omitempty"`
	Past     *past     `json:"past,omitempty"`
	// Final is how the pod has ended.
	Final *podgroup.Unit `json:"final,omitempty"`
	// Lost reports that the machine, not the pod, has ended: there is nothing to keep it for.
	Lost bool `json:"lost,omitempty"`
}

// noLaterThan has nothing in a record be later than now: a clock that was ahead, and was set since, must
// not keep a machine that is gone, or is to be ended, until that time.
func (r *record) noLaterThan(now time.Time) {
	if r.Created.After(now) {
		r.Created = now
	}
	if r.Final != nil && r.Final.Ended.After(now) {
		r.Final.Ended = now
	}
}

// records are files in a directory.
type records struct{ dir string }

const recordSuffix = ".json"

func (r records) path(name string) string { return filepath.Join(r.dir, name+recordSuffix) }

// clean removes what a process that was killed has left of a record.
func (r records) clean() error {
	left, err := filepath.Glob(filepath.Join(r.dir, unfinished+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// save writes a record.
func (r records) save(one *record) error {
	data, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if err := writeFile(r.path(one.Name), data); err != nil {
		return fmt.Errorf("the record of machine %s cannot be written: %w", one.Name, err)
	}
	return nil
}

// remove removes the record of a machine, if there is one.
func (r records) remove(name string) error {
	if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// load returns all records. One that cannot be read is an error: its machine may have a pod.
func (r records) load() ([]*record, error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), recordSuffix)
		if !is {
			continue
		}
		data, err := os.ReadFile(r.path(name))
		if err != nil {
			return nil, err
		}
		one := &record{}
		err = json.Unmarshal(data, one)
		if err == nil && one.Name != name {
			err = fmt.Errorf("it is that of machine %q", one.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("the record %s cannot be read: remove it once its machine is gone: %w", r.path(name), err)
		}
		all = append(all, one)
	}
	return all, nil
}
