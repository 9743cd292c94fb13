package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// tree is the content of a layer, by path without a leading slash.
type tree map[string]entry

type entry struct {
	kind    byte // a tar type flag
	mode    int64
	target  string // of a symbolic link
	source  string // file of this machine, or
	content string // the content itself
}

func (t tree) dir(name string, mode int64) { t.add(name, entry{kind: tar.TypeDir, mode: mode}) }

func (t tree) link(name, target string) {
	t.add(name, entry{kind: tar.TypeSymlink, mode: 0o777, target: target})
}

func (t tree) text(name, content string) {
	t.add(name, entry{kind: tar.TypeReg, mode: 0o644, content: content})
}

// file copies a file of this machine.
func (t tree) file(name, source string, mode int64) {
	t.add(name, entry{kind: tar.TypeReg, mode: mode, source: source})
}

func (t tree) add(name string, e entry) { t[path.Clean(strings.TrimPrefix(name, "/"))] = e }

// write writes the tree as a tar. The same tree gives the same bytes.
func (t tree) write(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e := t[name]
		header := &tar.Header{Name: name, Typeflag: e.kind, Mode: e.mode, Linkname: e.target, Format: tar.FormatPAX}
		var content io.Reader = strings.NewReader(e.content)
		header.Size = int64(len(e.content))
		if e.kind == tar.TypeDir {
			header.Name += "/"
		}
		if e.source != "" {
			file, err := os.Open(e.source)
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return err
			}
			content, header.Size = file, info.Size()
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if _, err := io.Copy(w, content); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return w.Close()
}

// digest identifies the content.
func (t tree) digest() (string, error) {
	hash := sha256.New()
	if err := t.write(hash); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
