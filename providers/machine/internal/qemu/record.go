package qemu

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// record is what lasts of a machine: a file in its directory, which is there before anything else.
type record struct {
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags"`
	Address netip.Addr        `json:"address"`
	Created time.Time         `json:"created"`
	// Boot is the start of the host that the process belongs to; PID and Start, in ticks since
	// then, are the process. PID is 0 until it is made.
	Boot  string `json:"boot"`
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
}

const recordFile = "machine.json"

// has reports whether a machine has all these tags.
func (r *record) has(tags map[string]string) bool {
	for key, value := range tags {
		if is, ok := r.Tags[key]; !ok || is != value {
			return false
		}
	}
	return true
}

// save writes the record, which is on disk then: it is the old one or the new one, also after a
// power failure.
func (r *record) save(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readRecord reads the record in a directory. One that cannot be read is an error: its machine may
// run.
func readRecord(dir string) (*record, error) {
	path := filepath.Join(dir, recordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{}
	err = json.Unmarshal(data, r)
	if err == nil && r.Name != filepath.Base(dir) {
		err = fmt.Errorf("it is that of machine %q", r.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("the record %s cannot be read: remove its directory once the machine is gone: %w", path, err)
	}
	return r, nil
}
