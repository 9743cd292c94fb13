package translate

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// kubelet is what a kubelet knows of the cluster that it runs in.
type kubelet struct {
	services  []corev1.EnvVar
	configMap map[string]string
	secret    map[string][]byte
	podIP     string
}

// environment returns the variables, the command and the arguments of a container, as those of
// Kubernetes 1.36 do (makeEnvironmentVariables, ExpandContainerCommandAndArgs): a reference is to what
// was defined before, or else to a variable of a Service, and stays if there is none.
func (k *kubelet) environment(c *corev1.Container) (env map[string]string, command []string) {
	services := map[string]string{}
	for _, v := range k.services {
		services[v.Name] = v.Value
	}
	env = map[string]string{}
	expand := func(text string) string {
		known := maps.Clone(services)
		maps.Copy(known, env)
		var list []corev1.EnvVar
		for name, value := range known {
			list = append(list, corev1.EnvVar{Name: name, Value: value})
		}
		return podenv.Expand(text, list)
	}
	for i := range c.EnvFrom {
		for key, value := range k.configMap {
			env[c.EnvFrom[i].Prefix+key] = value
		}
	}
	for _, v := range c.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case value != "":
			value = expand(value)
		case from == nil:
		case from.FieldRef != nil:
			value = k.podIP
			if from.FieldRef.FieldPath == "metadata.name" {
				value = "api"
			}
		case from.ConfigMapKeyRef != nil:
			found, ok := k.configMap[from.ConfigMapKeyRef.Key]
			if !ok {
				continue
			}
			value = found
		case from.SecretKeyRef != nil:
			found, ok := k.secret[from.SecretKeyRef.Key]
			if !ok {
				panic("the Secret has no " + from.SecretKeyRef.Key)
			}
			value = string(found)
		}
		env[v.Name] = value
	}
	for name, value := range services {
		if _, ok := env[name]; !ok {
			env[name] = value
		}
	}
	for _, text := range slices.Concat(c.Command, c.Args) {
		command = append(command, expand(text))
	}
	return env, command
}

func plainVariable(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

func fieldVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func objectVariable(name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: key, Optional: new(true)}}}
}

// homeObjects is a podenv.Source.
type homeObjects struct{ *kubelet }

func (h homeObjects) ConfigMap(string, string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: h.configMap}, nil
}

func (homeObjects) Secret(string, string) (*corev1.Secret, error) {
	return nil, errdefs.NotFound("there are no Secrets")
}

func (homeObjects) Services(string) ([]*corev1.Service, error) {
	s := &corev1.Service{}
	s.Name, s.Spec.ClusterIP, s.Spec.Ports = "kubernetes", "10.96.0.1", []corev1.ServicePort{{Name: "https", Port: 443}}
	return []*corev1.Service{s}, nil
}

// serviceOf returns the variables of the Service "kubernetes" of a cluster.
func serviceOf(host string) []corev1.EnvVar {
	return []corev1.EnvVar{
		plainVariable("KUBERNETES_SERVICE_HOST", host), plainVariable("KUBERNETES_SERVICE_PORT", "443"), plainVariable("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
		plainVariable("KUBERNETES_PORT", "tcp://10.96.0.1:443"), plainVariable("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
		plainVariable("KUBERNETES_PORT_443_TCP_PROTO", "tcp"), plainVariable("KUBERNETES_PORT_443_TCP_PORT", "443"), plainVariable("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
	}
}

// apiServers are the API servers that a remote pod can find: the option and the annotation for that, and the
// variables that it sees.
var apiServers = map[string]struct {
	host, remote string
	sees         []corev1.EnvVar
}{
	"home's":               {sees: serviceOf("10.96.0.1")},
	"home's, elsewhere":    {host: "api.home", sees: serviceOf("api.home")},
	"the remote cluster's": {remote: "remote", sees: serviceOf("172.16.0.1")[:1]},
}

// compareWithKubelet compares the environment, command and arguments of a container in the remote cluster
// with those that a kubelet at home gives it.
func compareWithKubelet(t *testing.T, c *corev1.Container, apiServer string, configMap map[string]string) (env map[string]string, command []string) {
	t.Helper()
	server := apiServers[apiServer]
	pod := localPod(func(pod *corev1.Pod) { pod.Spec.Containers = []corev1.Container{*c.DeepCopy()} })
	pod.Annotations[AnnotationAPIServer] = server.remote
	original := pod.DeepCopy()
	o := options()
	o.APIServer.Host = server.host
	o.Unresolved = func(*corev1.Pod) *corev1.Pod { return original }
	home := &kubelet{services: server.sees, configMap: configMap, podIP: "10.0.0.7"}
	if _, err := podenv.Resolve(pod, homeObjects{home}, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	remote := translated(t, o, pod)
	there := &kubelet{services: serviceOf("172.16.0.1")[:1], secret: o.Environment(pod), podIP: "10.0.0.7"}
	env, command = there.environment(&remote.Spec.Containers[0])
	if wantEnv, want := home.environment(c); !maps.Equal(env, wantEnv) || !slices.Equal(command, want) {
		t.Errorf("API server: %s, ConfigMap %q, container %v, remote container %v: the environment and command are\n%q %q, want\n%q %q",
			apiServer, configMap, c, remote.Spec.Containers[0], env, command, wantEnv, want)
	}
	return env, command
}

// A remote pod has the environment that a kubelet at home would give it, although a part is resolved in
// the remote cluster.
func TestEnvironmentIsThatOfAKubelet(t *testing.T) {
	ip := fieldVariable("IP", "status.podIP")
	for name, c := range map[string]struct {
		env       []corev1.EnvVar
		from      bool
		apiServer string
		want      map[string]string
		command   string
	}{
		"references to what is known here, and to what is known there": {
			env:  []corev1.EnvVar{fieldVariable("NAME", "metadata.name"), ip, objectVariable("KEY", "A"), plainVariable("X", "$(NAME) $(IP) $(KEY)")},
			want: map[string]string{"X": "api 10.0.0.7 a"}, command: "api 10.0.0.7 a",
		},
		"references to references": {
			env:  []corev1.EnvVar{ip, plainVariable("URL", "http://$(IP)"), plainVariable("X", "<$(URL)>")},
			want: map[string]string{"X": "<http://10.0.0.7>"}, command: "<http://10.0.0.7>",
		},
		"a value is not expanded again": {
			env:  []corev1.EnvVar{ip, objectVariable("KEY", "REFERENCE"), plainVariable("X", "$(KEY) $(IP)")},
			want: map[string]string{"KEY": "$(IP)", "X": "$(IP) 10.0.0.7"}, command: "$(IP) 10.0.0.7",
		},
		"what is defined later is text": {
			env:  []corev1.EnvVar{plainVariable("X", "$(IP) $(LATER)"), ip, plainVariable("LATER", "later")},
			want: map[string]string{"X": "$(IP) $(LATER)"}, command: "$(IP) $(LATER)",
		},
		"what nobody defines is text":      {env: []corev1.EnvVar{ip, plainVariable("X", "$(NO) $(IP)")}, want: map[string]string{"X": "$(NO) 10.0.0.7"}, command: "$(NO) 10.0.0.7"},
		"escapes":                          {env: []corev1.EnvVar{ip, plainVariable("X", "$$(IP) $$$(IP) $$ $x $(IP")}, want: map[string]string{"X": "$(IP) $10.0.0.7 $ $x $(IP"}, command: "$(IP) $10.0.0.7 $ $x $(IP"},
		"an escape, and what comes later":  {env: []corev1.EnvVar{ip, plainVariable("X", "$(Y)$$(IP)"), plainVariable("Y", "y")}, want: map[string]string{"X": "$(Y)$(IP)"}, command: "$(Y)$(IP)"},
		"a name of envFrom, and its value": {env: []corev1.EnvVar{ip, plainVariable("A", "$$$(A) $(IP)"), plainVariable("X", "$(A)")}, from: true, want: map[string]string{"A": "$a 10.0.0.7", "X": "$a 10.0.0.7"}, command: "$a 10.0.0.7"},
		"an optional key that is missing":  {env: []corev1.EnvVar{objectVariable("A", "NO"), plainVariable("X", "$(A)")}, from: true, want: map[string]string{"A": "a", "X": "a"}, command: "a"},
		"the address of another API server": {
			env: []corev1.EnvVar{plainVariable("X", "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)")}, apiServer: "home's, elsewhere",
			want: map[string]string{"X": "https://api.home:443", "KUBERNETES_SERVICE_HOST": "api.home"}, command: "https://api.home:443",
		},
		"the address of another API server, and what comes later": {
			env: []corev1.EnvVar{plainVariable("X", "$(KUBERNETES_SERVICE_HOST)$(Y)"), plainVariable("Y", "y")}, apiServer: "home's, elsewhere",
			want: map[string]string{"X": "api.home$(Y)"}, command: "api.home$(Y)",
		},
		"the address of the remote API server": {
			env: []corev1.EnvVar{plainVariable("X", "https://$(KUBERNETES_SERVICE_HOST)")}, apiServer: "the remote cluster's",
			want: map[string]string{"X": "https://172.16.0.1", "KUBERNETES_SERVICE_HOST": "172.16.0.1"}, command: "https://172.16.0.1",
		},
		"an own address": {
			env: []corev1.EnvVar{plainVariable("KUBERNETES_SERVICE_HOST", "own"), plainVariable("X", "$(KUBERNETES_SERVICE_HOST)")}, apiServer: "home's, elsewhere",
			want: map[string]string{"X": "own", "KUBERNETES_SERVICE_HOST": "own"}, command: "own",
		},
		"an own address of another cluster": {
			env: []corev1.EnvVar{plainVariable("KUBERNETES_SERVICE_HOST", "own"), plainVariable("X", "$(KUBERNETES_SERVICE_HOST)")}, apiServer: "the remote cluster's",
			want: map[string]string{"X": "own", "KUBERNETES_SERVICE_HOST": "own"}, command: "own",
		},
		"the address of the pod as the API server's": {
			env: []corev1.EnvVar{fieldVariable("KUBERNETES_SERVICE_HOST", "status.podIP"), plainVariable("X", "$(KUBERNETES_SERVICE_HOST)")}, apiServer: "home's, elsewhere",
			want: map[string]string{"X": "10.0.0.7", "KUBERNETES_SERVICE_HOST": "10.0.0.7"}, command: "10.0.0.7",
		},
		"a name that only begins as those of the API server": {
			env: []corev1.EnvVar{fieldVariable("KUBERNETES_NAMESPACE", "metadata.name"), plainVariable("X", "$(KUBERNETES_NAMESPACE)")}, apiServer: "the remote cluster's",
			want: map[string]string{"X": "api", "KUBERNETES_NAMESPACE": "api"}, command: "api",
		},
	} {
		t.Run(name, func(t *testing.T) {
			container := corev1.Container{Name: "main", Env: c.env, Command: []string{"$(X)"}}
			if c.from {
				container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
			}
			env, command := compareWithKubelet(t, &container, cmp.Or(c.apiServer, "home's"), map[string]string{"A": "a", "REFERENCE": "$(IP)"})
			for name, want := range c.want {
				if env[name] != want {
					t.Errorf("%s is %q, want %q", name, env[name], want)
				}
			}
			if !slices.Equal(command, []string{c.command}) {
				t.Errorf("the command is %q, want %q", command, c.command)
			}
		})
	}
}

// So has each of many others, of which no variable is defined twice by env.
func TestAnyEnvironmentIsThatOfAKubelet(t *testing.T) {
	names := []string{"A", "B", "C", "KUBERNETES_NAMESPACE"}
	servers := slices.Sorted(maps.Keys(apiServers))
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
		text := func() (text string) {
			for range r.IntN(4) {
				name := append(names, "KUBERNETES_SERVICE_HOST")[r.IntN(5)]
				text += []string{"$(" + name + ")", "$(" + name + ")", "$(" + name + ")", "$$(" + name + ")", "$", "$$", "$(", ")", "x", "$(NO)"}[r.IntN(10)]
			}
			return text
		}
		configMap := map[string]string{}
		for _, name := range names[:3] {
			if r.IntN(3) == 0 {
				configMap[name] = text()
			}
		}
		c := corev1.Container{Name: "main", Command: []string{text()}, Args: []string{text(), text()}}
		if r.IntN(2) == 0 {
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}
		for _, i := range r.Perm(len(names))[:r.IntN(len(names)+1)] {
			c.Env = append(c.Env, []corev1.EnvVar{
				fieldVariable(names[i], "status.podIP"), fieldVariable(names[i], "metadata.name"), objectVariable(names[i], names[r.IntN(3)]),
				plainVariable(names[i], text()), plainVariable(names[i], text()), plainVariable(names[i], text()),
			}[r.IntN(6)])
		}
		compareWithKubelet(t, &c, servers[r.IntN(len(servers))], configMap)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
