package image

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func configJSON(name, text string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)},
	}
}

// secretFor has a user of the registry's name for each registry.
func secretFor(registries ...string) *corev1.Secret {
	var entries []string
	for _, r := range registries {
		entries = append(entries, fmt.Sprintf("%q: {\"username\": %[1]q, \"password\": \"p\"}", r))
	}
	return configJSON("s", `{"auths": {`+strings.Join(entries, ",")+`}}`)
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, image string
		want           bool
	}{
		// Those of the page about images in the Kubernetes documentation.
		{"*.kubernetes.io", "kubernetes.io/x", false},
		{"*.kubernetes.io", "abc.kubernetes.io/x", true},
		{"*.*.kubernetes.io", "abc.kubernetes.io/x", false},
		{"*.*.kubernetes.io", "abc.def.kubernetes.io/x", true},
		{"prefix.*.io", "prefix.kubernetes.io/x", true},
		{"*-good.kubernetes.io", "prefix-good.kubernetes.io/x", true},
		{"my-registry.example/images", "my-registry.example/images", true},
		{"my-registry.example/images", "my-registry.example/images/my-image", true},
		{"my-registry.example/images", "my-registry.example/images/another-image", true},
		{"my-registry.example/images", "my-registry.example/another", false},
		{"*.my-registry.example/images", "sub.my-registry.example/images/my-image", true},
		{"*.my-registry.example/images", "a.sub.my-registry.example/images/my-image", false},

		{"registry.io", "registry.io/a/b", true},
		{"https://registry.io", "registry.io/a", true},
		{"http://registry.io/", "registry.io/a", true},
		{"https://registry.io/v1/", "registry.io/a", true},
		{"https://registry.io/v2/team", "registry.io/team/a", true},
		{"https://registry.io/v2/team", "registry.io/a", false},
		{"registry.io/v1beta", "registry.io/a", false},
		{"registry.io:5000", "registry.io:5000/a", true},
		{"registry.io:5000", "registry.io/a", false},
		{"registry.io", "registry.io:5000/a", false},
		{"*.registry.io:5000", "eu.registry.io:5000/a", true},
		{"registry.io", "registry.io.evil/a", false},
		{"[a-c]?.io", "b1.io/a", true},
		{"[.io", "[.io/a", false},
		{"localhost", "localhost/a", true},
		{"https://index.docker.io/v1/", "nginx", true},
		{"index.docker.io", "docker.io/team/app", true},
		{"docker.io", "nginx", true},
		{"docker.io/team", "nginx", false},
		{"docker.io/team", "team/app:1", true},
		{"*", "localhost/a", true},
		{"*", "registry.io/a", false},
	} {
		ring, err := NewKeyring([]*corev1.Secret{secretFor(test.pattern)})
		if err != nil {
			t.Fatal(err)
		}
		repository := test.image
		if n, err := parse(test.image); err == nil {
			repository = n.repository
		}
		if got := len(ring.For(repository)) == 1; got != test.want {
			t.Errorf("%s for %s: %v", test.pattern, test.image, got)
		}
	}
}

func TestKeyringOrder(t *testing.T) {
	ring, err := NewKeyring([]*corev1.Secret{
		secretFor("*.example", "r.example", "r.example/images", "r.example/images/subpath", "other"),
		configJSON("same", `{"auths": {"r.example/images": {"username": "r.example/images", "password": "p"}}}`),
		configJSON("another", `{"auths": {"r.example/images": {"username": "second", "password": "p"}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range ring.For("r.example/images/subpath/my-image") {
		got = append(got, c.Username)
	}
	if want := "[r.example/images/subpath r.example/images second r.example *.example]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (&Keyring{}).For("x"); got != nil {
		t.Error(got)
	}
}

func TestSecrets(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("me:pa:ss"))
	for name, test := range map[string]struct {
		secret *corev1.Secret
		want   string // user password identity token
		fails  string
	}{
		"plain":      {configJSON("s", `{"auths": {"r.io": {"username": "me", "password": "pw", "email": "x"}}}`), "me pw", ""},
		"auth":       {configJSON("s", `{"auths": {"r.io": {"auth": "`+encoded+`", "username": "other"}}}`), "me pa:ss", ""},
		"no padding": {configJSON("s", `{"auths": {"r.io": {"auth": "`+strings.TrimRight(encoded, "=")+`"}}}`), "me pa:ss", ""},
		"token":      {configJSON("s", `{"auths": {"r.io": {"identitytoken": "tok"}}}`), "  tok", ""},
		"dockercfg": {&corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{
			corev1.DockerConfigKey: []byte(`{"https://r.io": {"username": "me", "password": "pw"}}`)}}, "me pw", ""},
		"other type":   {&corev1.Secret{Type: corev1.SecretTypeOpaque}, "", ""},
		"nothing":      {configJSON("s", `{"auths": {"r.io": {}}}`), "", ""},
		"no such auth": {configJSON("s", `{"auths": {"r.io": {"auth": "%%"}}}`), "", `pull secret ns/s: registry "r.io": auth is not the base64 encoding of username:password`},
		"no colon":     {configJSON("s", `{"auths": {"r.io": {"auth": "YWJj"}}}`), "", `pull secret ns/s: registry "r.io": auth is not the base64 encoding of username:password`},
		"no JSON":      {configJSON("s", `secret`), "", `pull secret ns/s: key ".dockerconfigjson" is no docker configuration in JSON: create the secret with kubectl create secret docker-registry`},
	} {
		ring, err := NewKeyring([]*corev1.Secret{test.secret, secretFor("good.io")})
		if (err == nil) != (test.fails == "") || err != nil && err.Error() != test.fails {
			t.Errorf("%s: %v", name, err)
		}
		got := ""
		for _, c := range ring.For("r.io/a") {
			got += strings.TrimRight(c.Username+" "+c.Password+" "+c.IdentityToken, " ")
			if c.ServerAddress != "" {
				t.Errorf("%s: server address %s", name, c.ServerAddress)
			}
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if len(ring.For("good.io/a")) != 1 {
			t.Errorf("%s spoils the other secret", name)
		}
	}
}

func TestParse(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]name{
		"nginx":                          {"nginx:latest", "docker.io/library/nginx", true},
		"nginx:1":                        {"nginx:1", "docker.io/library/nginx", false},
		"team/app:latest":                {"team/app:latest", "docker.io/team/app", true},
		"r.io:5000/a":                    {"r.io:5000/a:latest", "r.io:5000/a", true},
		"r.io/a" + digest:                {"r.io/a" + digest, "r.io/a", false},
		"r.io/a:latest" + digest:         {"r.io/a:latest" + digest, "r.io/a", false},
		"Upper":                          {},
		"":                               {},
		strings.Repeat("0", 64):          {},
		"a b":                            {},
		"r.io/" + strings.Repeat("a", 9): {"r.io/aaaaaaaaa:latest", "r.io/aaaaaaaaa", true},
	} {
		got, err := parse(image)
		if got != want || (err != nil) != (want == name{}) {
			t.Errorf("%q: %+v %v", image, got, err)
		}
	}
}
