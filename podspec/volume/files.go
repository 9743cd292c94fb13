package volume

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// DefaultMode is the mode of files of volumes that say nothing else.
const DefaultMode fs.FileMode = 0o644

// The longest names that file systems take.
const (
	maxPath    = 4096
	maxElement = 255
)

// File is one file of a volume.
type File struct {
	// Data is what is in it.
	Data []byte
	// Mode are its permissions, without the effect of a pod's fsGroup.
	Mode fs.FileMode
	// UID is its owner, if not the user that writes it.
	UID *int64
}

// Files are the files of a volume by their path in it, with slashes.
type Files map[string]File

// Validate returns an error, which is permanent, if f cannot be the files of a
// directory: because of a path that is not allowed (see CleanPath) or not
// clean, or that is a directory to another.
func (f Files) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		clean, err := CleanPath(name)
		if err != nil {
			return err
		}
		if clean != name {
			return permanentf("path %q is not clean: write %q", name, clean)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := f[dir]; ok {
				return permanentf("conflicting paths: %q cannot be a file and the directory of %q", dir, name)
			}
		}
	}
	return nil
}

// CleanPath returns a path in a volume without superfluous elements, or a
// permanent error if it is not allowed: paths are relative, do not have the
// element "..", and do not start with ".." (names that volumes need for
// themselves).
func CleanPath(name string) (string, error) {
	switch {
	case name == "":
		return "", permanentf("path is empty: name a file")
	case path.IsAbs(name):
		return "", permanentf("path %q is absolute: it must be relative to the volume", name)
	case len(name) > maxPath:
		return "", permanentf("path is longer than %d bytes: %.40q...", maxPath, name)
	case strings.ContainsRune(name, 0):
		return "", permanentf("path %q has a zero byte", name)
	case strings.HasPrefix(name, ".."):
		return "", permanentf("path %q starts with '..', which is reserved", name)
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return "", permanentf("path %q has the element '..': it must stay in the volume", name)
		}
		if len(element) > maxElement {
			return "", permanentf("an element of a path is longer than %d bytes: %.40q...", maxElement, element)
		}
	}
	clean := path.Clean(name)
	if clean == "." {
		return "", permanentf("path %q is the volume itself: name a file in it", name)
	}
	if strings.HasPrefix(clean, "..") { // "./..data"
		return "", permanentf("path %q starts with '..', which is reserved", name)
	}
	return clean, nil
}

// put adds a file, in place of an earlier one of the same path.
func (f Files) put(name string, file File) error {
	clean, err := CleanPath(name)
	if err == nil {
		f[clean] = file
	}
	return err
}

// modeOf returns the first mode that is given.
func modeOf(modes ...*int32) fs.FileMode {
	for _, mode := range modes {
		if mode != nil {
			return fs.FileMode(*mode) & fs.ModePerm
		}
	}
	return DefaultMode
}
