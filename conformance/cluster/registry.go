package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// serveImages serves the images of an archive as a registry, for specs that
// pull although the image is there. It returns its URL and what ends it.
func serveImages(path string) (string, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for the registry: %w", err)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = server.Serve(l) }() // ends with Close
	end := func() { _ = server.Close() }
	if err := push(path, l.Addr().String()); err != nil {
		end()
		return "", nil, fmt.Errorf("fill the registry: %w: build %s again with \"make conformance-parts\"", err, path)
	}
	return "http://" + l.Addr().String(), end, nil
}

// push puts every image under the path that its name has on its own host.
func push(path, host string) error {
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return err
	}
	for _, image := range manifest {
		for _, tag := range image.RepoTags {
			from, err := name.NewTag(tag)
			if err != nil {
				return err
			}
			to, err := name.NewTag(host+"/"+from.RepositoryStr()+":"+from.TagStr(), name.Insecure)
			if err != nil {
				return err
			}
			content, err := tarball.Image(open, &from)
			if err != nil {
				return err
			}
			if err := remote.Write(to, content); err != nil {
				return err
			}
		}
	}
	return nil
}
