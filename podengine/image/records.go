package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// secretRef is a pull secret, and a hash of what of it was used: a record may be
// matched by either, since secrets are rotated, and copied between namespaces.
type secretRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Hash      string    `json:"hash"`
}

// grants reports whether a pod with the secret b may have what was pulled with a.
func (a secretRef) grants(b secretRef) bool {
	return a.Hash == b.Hash || a.UID != "" && a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// access is the pods that may have an image under the name of a repository.
type access struct {
	Everyone bool        `json:"everyone,omitempty"` // it was pulled without credentials
	Secrets  []secretRef `json:"secrets,omitempty"`
}

// pulledRecord is what is on disk of an image that was pulled.
type pulledRecord struct {
	Image        string            `json:"image"`        // the runtime's ID
	Repositories map[string]access `json:"repositories"` // by name without tag and digest
}

// Records keeps on disk with which credentials images were pulled, so that no pod
// gets an image that it could not pull itself only because it is there (KEP-2535).
// A pull is on disk before it begins: an image of which only that is known, since
// the process was killed, is nobody's until it is pulled again. It is safe for
// concurrent use by one process.
type Records struct {
	pulling, pulled string // directories

	mu     sync.Mutex
	begun  map[string]int  // pulls under way, by image
	kept   map[string]bool // images whose intent stays until they are pulled
	missed map[string]int  // how often in a row an image was not there, by the record's file
}

// OpenRecords opens the records in a directory, which is made if there is none.
func OpenRecords(dir string) (*Records, error) {
	r := &Records{
		pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"),
		begun: map[string]int{}, kept: map[string]bool{}, missed: map[string]int{},
	}
	for _, d := range []string{r.pulling, r.pulled} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory for records of pulled images: %w", err)
		}
	}
	return r, nil
}

func fileOf(dir, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(dir, hex.EncodeToString(sum[:]))
}

// begin records that an image is about to be pulled.
func (r *Records) begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := fileOf(r.pulling, image)
	if _, err := os.Lstat(path); err == nil {
		if r.begun[image] == 0 {
			r.kept[image] = true // of a process that was killed
		}
	} else if err := writeWhole(path, []byte(image)); err != nil {
		return fmt.Errorf("record that image %s is pulled: %w", image, err)
	}
	r.begun[image]++
	return nil
}

// failed undoes begin. If unsure, the runtime may have the image all the same.
func (r *Records) failed(image string, unsure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[image] = r.kept[image] || unsure
	r.end(image)
}

// end removes an intent, unless it is still needed. r.mu is held.
func (r *Records) end(image string) {
	if r.begun[image]--; r.begun[image] > 0 {
		return
	}
	delete(r.begun, image)
	if r.kept[image] {
		return
	}
	delete(r.kept, image)
	_ = os.Remove(fileOf(r.pulling, image)) // what is left asks for one more pull
}

// succeeded records which pods may have an image that was pulled. If that cannot be
// written, nobody may until the next pull.
func (r *Records) succeeded(image, id, repository string, now access) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.grant(id, repository, now)
	r.kept[image] = err != nil
	r.end(image)
	return err
}

// mostSecrets is how many secrets a record has at most; the oldest go first.
const mostSecrets = 100

// grant adds to the pods that may have an image. r.mu is held.
func (r *Records) grant(id, repository string, more access) error {
	record, err := r.read(id)
	if err != nil || record == nil { // one that cannot be read grants nothing anyway
		record = &pulledRecord{Image: id, Repositories: map[string]access{}}
	}
	all := record.Repositories[repository]
	if all.Everyone || more.Everyone {
		all = access{Everyone: true}
	}
	for _, s := range more.Secrets {
		if all.Everyone {
			break
		}
		all.Secrets = slices.DeleteFunc(all.Secrets, func(old secretRef) bool {
			return old.Namespace == s.Namespace && old.Name == s.Name && old.UID == s.UID
		})
		all.Secrets = append(all.Secrets, s)
		all.Secrets = all.Secrets[max(0, len(all.Secrets)-mostSecrets):]
	}
	record.Repositories[repository] = all
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return writeWhole(fileOf(r.pulled, id), content)
}

// read returns the record of an image, nil if there is none. r.mu is held.
func (r *Records) read(id string) (*pulledRecord, error) {
	content, err := os.ReadFile(fileOf(r.pulled, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	record := &pulledRecord{}
	if err == nil {
		err = json.Unmarshal(content, record)
	}
	if err == nil && record.Image != id {
		err = errors.New("it is about another image")
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of image %s: %w", id, err)
	}
	if record.Repositories == nil {
		record.Repositories = map[string]access{}
	}
	return record, nil
}

// known reports whether the image was pulled by this node, as far as is recorded,
// and whether a pod with the given secrets may have it.
func (r *Records) known(image, id, repository string, secrets []secretRef) (ours, allowed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.read(id)
	if err != nil {
		return true, false, err
	}
	if record == nil {
		_, err := os.Lstat(fileOf(r.pulling, image))
		return !errors.Is(err, fs.ErrNotExist), false, nil
	}
	who := record.Repositories[repository]
	if who.Everyone {
		return true, true, nil
	}
	for _, s := range secrets {
		if slices.ContainsFunc(who.Secrets, func(old secretRef) bool { return old.grants(s) }) {
			if !slices.Contains(who.Secrets, s) {
				_ = r.grant(id, repository, access{Secrets: []secretRef{s}}) // else it is matched as it was the next time
			}
			return true, true, nil
		}
	}
	return true, false, nil
}

// prunedAfter is how often in a row an image must not be there for its record to
// go: a runtime that restarts may answer empty lists.
const prunedAfter = 3

// Prune removes the records of images that have gone. It is to be called from time
// to time with the IDs of all that the runtime has, which were listed since then.
func (r *Records) Prune(ids []string, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[string]bool{}
	for _, id := range ids {
		there[filepath.Base(fileOf("", id))] = true
	}
	entries, _ := os.ReadDir(r.pulled)
	missed := map[string]int{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || there[entry.Name()] || !info.ModTime().Before(since) {
			continue
		}
		if missed[entry.Name()] = r.missed[entry.Name()] + 1; missed[entry.Name()] >= prunedAfter {
			_ = os.Remove(filepath.Join(r.pulled, entry.Name()))
			delete(missed, entry.Name())
		}
	}
	r.missed = missed
}

// writeWhole writes a file whole or not at all, also if the machine fails.
func writeWhole(path string, content []byte) error {
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
