package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// login is an entry of a docker configuration.
type login struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password; it counts before them
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// logins reads a pull secret: its entries by registry. A secret of another type
// has none.
func logins(secret *corev1.Secret) (map[string]login, error) {
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]login `json:"auths"`
		}
		err := decode(secret, corev1.DockerConfigJsonKey, &config)
		return config.Auths, err
	case corev1.SecretTypeDockercfg:
		var entries map[string]login
		err := decode(secret, corev1.DockerConfigKey, &entries)
		return entries, err
	}
	return nil, nil
}

func decode(secret *corev1.Secret, key string, into any) error {
	if err := json.Unmarshal(secret.Data[key], into); err != nil {
		// The error of the decoder may quote the secret.
		return fmt.Errorf("key %q is no docker configuration in JSON: create the secret with kubectl create secret docker-registry", key)
	}
	return nil
}

// credentials returns what the runtime is given, nil if the entry is empty. The
// server's address is left out: runtimes compare it with the image's registry,
// which patterns and paths would not match.
func (l login) credentials() (*runtimeapi.AuthConfig, error) {
	auth := &runtimeapi.AuthConfig{
		Username:      l.Username,
		Password:      l.Password,
		IdentityToken: l.IdentityToken,
		RegistryToken: l.RegistryToken,
	}
	if l.Auth != "" {
		encoded := strings.TrimRight(l.Auth, "=")
		text, err := base64.RawStdEncoding.DecodeString(encoded)
		username, password, ok := strings.Cut(string(text), ":")
		if err != nil || !ok {
			return nil, errors.New("auth is not the base64 encoding of username:password")
		}
		auth.Username, auth.Password = username, strings.TrimRight(password, "\x00")
	}
	if auth.Username == "" && auth.Password == "" && auth.IdentityToken == "" && auth.RegistryToken == "" {
		return nil, nil
	}
	return auth, nil
}
