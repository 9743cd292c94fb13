// Command images makes the images that the suite's specs run, without a
// registry: of Debian's packages and of the suite's own programs, as one
// archive that "ctr images import" takes.
//
//	images -bin DIR -kubernetes DIR -out FILE
//
// It does nothing when the archive has these contents already.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	bin := flags.String("bin", "", "directory with the programs that build.sh has built (required)")
	kubernetes := flags.String("kubernetes", "", "directory of the module k8s.io/kubernetes (required)")
	out := flags.String("out", "", "archive to write (required)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *bin == "" || *kubernetes == "" || *out == "" || flags.NArg() > 0 {
		return errors.New("usage: images -bin DIR -kubernetes DIR -out FILE")
	}
	if err := checkInstalled(); err != nil {
		return err
	}
	list, err := catalog(sources{bin: *bin, kubernetes: *kubernetes})
	if err != nil {
		return err
	}
	stamp, err := digest(list)
	if err != nil {
		return fmt.Errorf("read what images are made of: %w: run build.sh first", err)
	}
	if old, err := os.ReadFile(*out + ".stamp"); err == nil && string(old) == stamp {
		if _, err := os.Stat(*out); err == nil {
			return nil
		}
	}
	if err := write(*out, list); err != nil {
		return fmt.Errorf("write the archive of images: %w", err)
	}
	return os.WriteFile(*out+".stamp", []byte(stamp), 0o644)
}

// digest identifies all contents. Trees that images share are read once each.
func digest(list []image) (string, error) {
	hash := sha256.New()
	for _, image := range list {
		if err := json.NewEncoder(hash).Encode([]any{image.name, image.config}); err != nil {
			return "", err
		}
		for _, layer := range image.layers {
			sum, err := layer.digest()
			if err != nil {
				return "", err
			}
			fmt.Fprintln(hash, sum)
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

// write writes to another name first: an interrupted run leaves the old archive.
func write(path string, list []image) error {
	layers := layerCache{}
	images := map[name.Reference]v1.Image{}
	for _, image := range list {
		reference, err := name.NewTag(image.name)
		if err != nil {
			return err
		}
		if images[reference], err = layers.image(image); err != nil {
			return fmt.Errorf("make %s: %w", image.name, err)
		}
	}
	temporary := path + ".tmp"
	defer os.Remove(temporary) // not there any more when all went well
	if err := tarball.MultiRefWriteToFile(temporary, images); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// layerCache has a layer for each tree, by its digest: compressing takes longest.
type layerCache map[string]v1.Layer

func (c layerCache) image(i image) (v1.Image, error) {
	var layers []v1.Layer
	for _, t := range i.layers {
		key, err := t.digest()
		if err != nil {
			return nil, err
		}
		if c[key] == nil {
			opener := func() (io.ReadCloser, error) {
				r, w := io.Pipe()
				go func() { w.CloseWithError(t.write(w)) }()
				return r, nil
			}
			if c[key], err = tarball.LayerFromOpener(opener, tarball.WithCompressionLevel(1), tarball.WithCompressedCaching); err != nil {
				return nil, err
			}
		}
		layers = append(layers, c[key])
	}
	result, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := result.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, i.config
	return mutate.ConfigFile(result, file)
}
