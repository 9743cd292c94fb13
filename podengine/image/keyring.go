package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring knows which credentials are for which images. It does not change, and
// is safe for concurrent use. The zero value has none.
type Keyring struct {
	keys []key // the most specific first
}

// key is the credentials for the images that a pattern matches.
type key struct {
	pattern     pattern
	credentials *runtimeapi.AuthConfig
	secret      secretRef
}

// credential is one way to pull, and the secrets that it is in.
type credential struct {
	auth    *runtimeapi.AuthConfig
	secrets []secretRef
}

// NewKeyring makes a keyring from pull secrets, of the types
// kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg. Other secrets are
// passed over. The keyring is good even with an error, which names secrets or
// entries that cannot be read.
func NewKeyring(secrets []*corev1.Secret) (*Keyring, error) {
	var errs []error
	ring := &Keyring{}
	for _, secret := range secrets {
		entries, err := logins(secret)
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", secret.Namespace, secret.Name, err))
		}
		for _, registry := range slices.Sorted(maps.Keys(entries)) {
			credentials, err := entries[registry].credentials()
			if err != nil {
				errs = append(errs, fmt.Errorf("pull secret %s/%s: registry %q: %w", secret.Namespace, secret.Name, registry, err))
			} else if credentials != nil {
				ring.keys = append(ring.keys, key{parsePattern(registry), credentials, refOf(secret, credentials)})
			}
		}
	}
	// Longer paths and whole names come before shorter ones and patterns.
	slices.SortStableFunc(ring.keys, func(a, b key) int { return cmp.Compare(b.pattern.text(), a.pattern.text()) })
	return ring, errors.Join(errs...)
}

// For returns the credentials for a repository, in the order in which to try
// them. The repository has its registry: docker.io/library/nginx.
func (k *Keyring) For(repository string) []*runtimeapi.AuthConfig {
	var found []*runtimeapi.AuthConfig
	for _, c := range k.credentials(repository) {
		found = append(found, c.auth)
	}
	return found
}

// credentials is For, with the secrets.
func (k *Keyring) credentials(repository string) (found []credential) {
	for _, key := range k.keys {
		if !key.pattern.matches(repository) {
			continue
		}
		i := slices.IndexFunc(found, func(c credential) bool { return proto.Equal(c.auth, key.credentials) })
		if i < 0 {
			i = len(found)
			found = append(found, credential{auth: key.credentials})
		}
		found[i].secrets = append(found[i].secrets, key.secret)
	}
	return found
}

// refOf is how records name a secret with the credentials in it.
func refOf(secret *corev1.Secret, auth *runtimeapi.AuthConfig) secretRef {
	sum := sha256.New()
	for _, part := range []string{auth.Username, auth.Password, auth.IdentityToken, auth.RegistryToken} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return secretRef{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, Hash: hex.EncodeToString(sum.Sum(nil))}
}

// pattern is a registry of a docker configuration, as Kubernetes reads it
// (https://kubernetes.io/docs/concepts/containers/images/#config-json): each
// part of the host may be a glob, which does not match dots, and a path matches
// all that begins with it.
type pattern struct {
	host []string // the parts between dots
	port string
	path string // without the leading slash
}

func parsePattern(registry string) pattern {
	registry = strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	host, dir, _ := strings.Cut(registry, "/")
	// What docker login writes ends in the version of the registry's API.
	for _, version := range []string{"v1", "v2"} {
		if dir == version || strings.HasPrefix(dir, version+"/") {
			dir = strings.TrimPrefix(dir[len(version):], "/")
		}
	}
	host, port, _ := strings.Cut(host, ":")
	if host == "index.docker.io" { // Docker Hub's name of old
		host = "docker.io"
	}
	return pattern{host: strings.Split(host, "."), port: port, path: dir}
}

func (p pattern) text() string { return strings.Join(p.host, ".") + ":" + p.port + "/" + p.path }

func (p pattern) matches(repository string) bool {
	host, dir, _ := strings.Cut(repository, "/")
	host, port, _ := strings.Cut(host, ":")
	parts := strings.Split(host, ".")
	if len(parts) != len(p.host) || port != p.port || !strings.HasPrefix(dir, p.path) {
		return false
	}
	for i, part := range parts {
		if ok, err := path.Match(p.host[i], part); !ok || err != nil {
			return false
		}
	}
	return true
}
