//go:build containers

package deploy

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The archive is an OCI layout, and what "docker save" writes, which crane reads by
// the files' names as they are.
func TestImageIsForAllTools(t *testing.T) {
	files := imageFiles(t)
	for name, content := range files { // each is named after what is in it
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest != fmt.Sprintf("%x", sha256.Sum256(content)) {
			t.Errorf("%s has other contents", name)
		}
	}
	type reference struct{ Digest string }
	blob := func(r reference) string { return "blobs/" + strings.Replace(r.Digest, ":", "/", 1) }
	var index struct{ Manifests []reference }
	must(t, json.Unmarshal(files["index.json"], &index))
	var manifest struct {
		Config reference
		Layers []reference
	}
	must(t, json.Unmarshal(files[blob(index.Manifests[0])], &manifest))
	var saved []struct {
		Config           string
		RepoTags, Layers []string
	}
	must(t, json.Unmarshal(files["manifest.json"], &saved))
	if saved[0].Config != blob(manifest.Config) || !slices.Equal(saved[0].Layers, []string{blob(manifest.Layers[0])}) {
		t.Errorf("manifest.json says %+v, and the layout %+v", saved[0], manifest)
	}
	for _, name := range []string{"oci-layout", saved[0].Config, saved[0].Layers[0]} {
		if len(files[name]) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	// What is deployed is what "make image" makes.
	for _, manifest := range []string{"deployment.yaml", "kubernetes-deployment.yaml"} {
		text, err := os.ReadFile(filepath.Join(manifests, manifest))
		must(t, err)
		if !strings.Contains(string(text), "image: "+saved[0].RepoTags[0]+"\n") {
			t.Errorf("%s has not the image %s", manifest, saved[0].RepoTags[0])
		}
	}
}

// imageFiles are the contents of the archive.
func imageFiles(t *testing.T) map[string][]byte {
	t.Helper()
	archive, err := os.Open(filepath.Join(bin, "image.tar"))
	must(t, err)
	defer archive.Close()
	files := map[string][]byte{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		if header.Typeflag == tar.TypeReg {
			files[header.Name], err = io.ReadAll(reader)
			must(t, err)
		}
	}
}
