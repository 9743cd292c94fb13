package podenv_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func boolPtr(b bool) *bool { return &b }

// newPod makes a pod without service links (there are tests for those), with
// one container.
func newPod(c corev1.Container) *corev1.Pod {
	c.Name = "c"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-1"},
		Spec:       corev1.PodSpec{EnableServiceLinks: boolPtr(false), Containers: []corev1.Container{c}},
	}
}

// lines renders variables as NAME=value, or NAME? for those left to others.
func lines(env []corev1.EnvVar) []string {
	list := []string{}
	for _, v := range env {
		if v.ValueFrom != nil {
			list = append(list, v.Name+"?"+v.Value)
			continue
		}
		list = append(list, v.Name+"="+v.Value)
	}
	return list
}

func wantEnv(t *testing.T, env []corev1.EnvVar, want ...string) {
	t.Helper()
	if got := lines(env); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func objects() *fake {
	return &fake{
		configMaps: map[string]map[string]string{
			"ns/cm":    {"b": "cm-b", "a": "cm-a"},
			"ns/other": {"a": "other-a", "ref": "$(a)"},
			"ns/odd":   {"1st": "one", "with space": "two", "eq=": "no", "é": "no", "": "no"},
			"xx/cm":    {"a": "wrong namespace"},
		},
		secrets: map[string]map[string]string{
			"ns/s": {"a": "s-a", "pw": "hunter2"},
		},
	}
}

func TestEnv(t *testing.T) {
	for name, tc := range map[string]struct {
		env     []corev1.EnvVar
		envFrom []corev1.EnvFromSource
		want    []string
	}{
		"none":           {nil, nil, []string{}},
		"plain":          {[]corev1.EnvVar{value("B", "1"), value("A", "")}, nil, []string{"B=1", "A="}},
		"later env wins": {[]corev1.EnvVar{value("A", "1"), value("B", "2"), value("A", "3")}, nil, []string{"B=2", "A=3"}},
		"references see what is defined so far": {
			[]corev1.EnvVar{value("X", "<$(A)>"), value("A", "1"), value("Y", "<$(A)>"), value("A", "$(A)2")}, nil,
			[]string{"X=<$(A)>", "Y=<1>", "A=12"},
		},
		"references see envFrom": {
			[]corev1.EnvVar{value("X", "<$(a)> $$(a)")}, []corev1.EnvFromSource{configMapRef("cm")},
			[]string{"a=cm-a", "b=cm-b", "X=<cm-a> $(a)"},
		},
		"envFrom: sorted keys, later source wins, values are not expanded": {
			nil, []corev1.EnvFromSource{configMapRef("cm"), configMapRef("other")},
			[]string{"b=cm-b", "a=other-a", "ref=$(a)"},
		},
		"envFrom: prefix": {
			nil, []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: configMapRef("cm").ConfigMapRef}, secretRef("s")},
			[]string{"P_a=cm-a", "P_b=cm-b", "a=s-a", "pw=hunter2"},
		},
		"env wins over envFrom": {
			[]corev1.EnvVar{value("a", "mine")}, []corev1.EnvFromSource{configMapRef("cm")},
			[]string{"b=cm-b", "a=mine"},
		},
		"keys": {
			[]corev1.EnvVar{fromConfigMap("X", "cm", "a"), fromSecret("Y", "s", "pw"), value("Z", "$(X) $(Y)")}, nil,
			[]string{"X=cm-a", "Y=hunter2", "Z=cm-a hunter2"},
		},
		"key values are not expanded": {
			[]corev1.EnvVar{value("a", "1"), fromConfigMap("X", "other", "ref")}, nil,
			[]string{"a=1", "X=$(a)"},
		},
		"an optional key that is missing leaves what was defined before": {
			[]corev1.EnvVar{fromConfigMap("a", "cm", "none", true), fromSecret("b", "none", "k", true), fromSecret("Q", "s", "none", true)},
			[]corev1.EnvFromSource{configMapRef("cm"), secretRef("none", true), configMapRef("none", true)},
			[]string{"a=cm-a", "b=cm-b"},
		},
		"value beside valueFrom: value wins": {
			[]corev1.EnvVar{{Name: "A", Value: "v", ValueFrom: fromConfigMap("", "cm", "a").ValueFrom}}, nil,
			[]string{"A=v"},
		},
		"file keys are left alone": {
			[]corev1.EnvVar{
				value("F", "old"),
				{Name: "F", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Key: "k", Path: "p", VolumeName: "v"}}},
				value("G", "$(F)"),
			}, nil,
			[]string{"F?", "G=$(F)"},
		},
		"an empty source is left alone": {
			[]corev1.EnvVar{{Name: "F", ValueFrom: &corev1.EnvVarSource{}}}, []corev1.EnvFromSource{{}},
			[]string{"F?"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(corev1.Container{Env: tc.env, EnvFrom: tc.envFrom})
			if _, err := podenv.Resolve(pod, objects(), podenv.Options{}); err != nil {
				t.Fatal(err)
			}
			wantEnv(t, pod.Spec.Containers[0].Env, tc.want...)
			if pod.Spec.Containers[0].EnvFrom != nil {
				t.Error("envFrom is not empty")
			}
		})
	}
}

func TestAllContainersAndTheirCommands(t *testing.T) {
	c := corev1.Container{
		Env:     []corev1.EnvVar{value("A", "1"), fromField("IP", "status.podIP")},
		Command: []string{"run", "$(A)", "$$(A)", "$(IP)"},
		Args:    []string{"$(NONE)", "x$(A)"},
	}
	pod := newPod(c)
	pod.Spec.InitContainers = []corev1.Container{*c.DeepCopy()}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(*c.DeepCopy())}}
	if _, err := podenv.Resolve(pod, &fake{}, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, got := range []corev1.Container{
		pod.Spec.InitContainers[0], pod.Spec.Containers[0],
		corev1.Container(pod.Spec.EphemeralContainers[0].EphemeralContainerCommon),
	} {
		wantEnv(t, got.Env, "A=1", "IP?")
		if want := []string{"run", "1", "$(A)", "$(IP)"}; !slices.Equal(got.Command, want) {
			t.Errorf("command %q, want %q", got.Command, want)
		}
		if want := []string{"$(NONE)", "x1"}; !slices.Equal(got.Args, want) {
			t.Errorf("args %q, want %q", got.Args, want)
		}
	}
}

func TestFields(t *testing.T) {
	full := func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web", "a": `q"uote`}
		p.Annotations = map[string]string{"example.com/Key": "note"}
		p.Spec.NodeName = "vk"
		p.Spec.ServiceAccountName = "sa"
		p.Status.HostIP = "10.0.0.1"
		p.Status.HostIPs = []corev1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
		p.Status.PodIP = "10.1.0.1"
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd01::1"}}
	}
	for _, tc := range []struct {
		path string
		pod  func(*corev1.Pod)
		opts podenv.Options
		want string
	}{
		{"metadata.name", full, podenv.Options{}, "V=p"},
		{"metadata.namespace", full, podenv.Options{}, "V=ns"},
		{"metadata.uid", full, podenv.Options{}, "V=uid-1"},
		{"metadata.labels['app']", full, podenv.Options{}, "V=web"},
		{"metadata.labels['none']", full, podenv.Options{}, "V="},
		{"metadata.annotations['example.com/Key']", full, podenv.Options{}, "V=note"},
		{"metadata.labels", full, podenv.Options{}, "V=a=\"q\\\"uote\"\napp=\"web\""},
		{"metadata.annotations", full, podenv.Options{}, `V=example.com/Key="note"`},
		{"spec.nodeName", full, podenv.Options{}, "V=vk"},
		{"spec.serviceAccountName", full, podenv.Options{}, "V=sa"},
		{"status.hostIP", full, podenv.Options{HostIPs: []string{"1.2.3.4"}}, "V=10.0.0.1"},
		{"status.hostIPs", full, podenv.Options{}, "V=10.0.0.1,fd00::1"},
		{"status.podIP", full, podenv.Options{}, "V=10.1.0.1"},
		{"status.podIPs", full, podenv.Options{}, "V=10.1.0.1,fd01::1"},

		{"status.hostIP", nil, podenv.Options{HostIPs: []string{"1.2.3.4", "fd::1"}}, "V=1.2.3.4"},
		{"status.hostIPs", nil, podenv.Options{HostIPs: []string{"1.2.3.4", "fd::1"}}, "V=1.2.3.4,fd::1"},
		{"status.hostIP", nil, podenv.Options{}, "V?"},
		{"status.hostIPs", nil, podenv.Options{}, "V?"},
		{"status.podIP", nil, podenv.Options{HostIPs: []string{"1.2.3.4"}}, "V?"},
		{"status.podIPs", nil, podenv.Options{}, "V?"},
		{"status.hostIPs", func(p *corev1.Pod) { p.Status.HostIP = "5.6.7.8" }, podenv.Options{}, "V=5.6.7.8"},
		{"status.podIPs", func(p *corev1.Pod) { p.Status.PodIP = "5.6.7.8" }, podenv.Options{}, "V=5.6.7.8"},
		{"status.podIPs", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, podenv.Options{HostIPs: []string{"1.2.3.4", "fd::1"}}, "V=1.2.3.4,fd::1"},
		{"status.podIP", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, podenv.Options{}, "V?"},
	} {
		pod := newPod(corev1.Container{Env: []corev1.EnvVar{fromField("V", tc.path)}})
		if tc.pod != nil {
			tc.pod(pod)
		}
		if _, err := podenv.Resolve(pod, &fake{}, tc.opts); err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		wantEnv(t, pod.Spec.Containers[0].Env, tc.want)
	}
}

func TestResources(t *testing.T) {
	node := podenv.Options{NodeAllocatable: corev1.ResourceList{
		"cpu": quantity("8"), "memory": quantity("16Gi"), "ephemeral-storage": quantity("100Gi"), "hugepages-2Mi": quantity("1Gi"),
	}}
	for _, tc := range []struct {
		container, resource, divisor string
		opts                         podenv.Options
		want                         string
	}{
		{"", "limits.cpu", "", node, "2"}, // 1500m, rounded up
		{"", "limits.cpu", "1m", node, "1500"},
		{"", "requests.cpu", "1m", node, "250"},
		{"", "requests.cpu", "0", node, "1"},
		{"", "limits.memory", "", node, "134217728"},
		{"", "limits.memory", "1Mi", node, "128"},
		{"", "limits.memory", "1Gi", node, "1"},
		{"", "requests.memory", "1Mi", node, "64"},
		{"", "limits.ephemeral-storage", "1Gi", node, "100"},
		{"", "requests.ephemeral-storage", "1Gi", node, "0"},
		{"", "limits.hugepages-2Mi", "1Mi", node, "4"},
		{"", "requests.hugepages-2Mi", "1Mi", node, "4"},
		{"c", "limits.cpu", "1m", node, "1500"},
		{"side", "limits.cpu", "", node, "8"},
		{"side", "limits.memory", "1Gi", node, "16"},
		{"side", "limits.hugepages-2Mi", "1Mi", node, "0"},
		{"side", "limits.cpu", "", podenv.Options{}, "0"},
		{"init", "limits.cpu", "", node, "3"},
	} {
		pod := newPod(corev1.Container{
			Env: []corev1.EnvVar{fromResource("V", tc.container, tc.resource, tc.divisor)},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": quantity("1500m"), "memory": quantity("128Mi"), "hugepages-2Mi": quantity("4Mi")},
				Requests: corev1.ResourceList{"cpu": quantity("250m"), "memory": quantity("64Mi"), "hugepages-2Mi": quantity("4Mi")},
			},
		})
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side"})
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": quantity("3")},
		}}}
		before := pod.Spec.Containers[1].DeepCopy()
		if _, err := podenv.Resolve(pod, &fake{}, tc.opts); err != nil {
			t.Errorf("%s of %q: %v", tc.resource, tc.container, err)
			continue
		}
		wantEnv(t, pod.Spec.Containers[0].Env, "V="+tc.want)
		if !reflect.DeepEqual(before, &pod.Spec.Containers[1]) {
			t.Error("the limits were written into the container")
		}
	}
}

func TestPodLevelLimitComesBeforeTheNodes(t *testing.T) {
	pod := newPod(corev1.Container{Env: []corev1.EnvVar{
		fromResource("CPU", "", "limits.cpu", ""), fromResource("MEM", "", "limits.memory", "1Gi"),
	}})
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": quantity("4")}}
	opts := podenv.Options{NodeAllocatable: corev1.ResourceList{"cpu": quantity("8"), "memory": quantity("16Gi")}}
	if _, err := podenv.Resolve(pod, &fake{}, opts); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env, "CPU=4", "MEM=16")
}

func TestProblems(t *testing.T) {
	broken := func() *fake {
		f := objects()
		f.errs = map[string]error{
			"configmap ns/broken": errors.New("boom"), "secret ns/broken": errors.New("boom"),
			"services none/": errors.New("boom"),
		}
		return f
	}
	cm := func(name string) podenv.Object { return podenv.Object{Kind: "ConfigMap", Namespace: "ns", Name: name} }
	secret := func(name string) podenv.Object { return podenv.Object{Kind: "Secret", Namespace: "ns", Name: name} }
	for _, tc := range []struct {
		container corev1.Container
		opts      podenv.Options
		want      podenv.Problem
	}{
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("x", true)}}, podenv.Options{},
			podenv.Problem{Reason: "OptionalConfigMapNotFound", Message: `configmap "x" not found`, Object: cm("x")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("x")}}, podenv.Options{},
			podenv.Problem{Reason: "MandatoryConfigMapNotFound", Message: `configmap "x" not found`, Fatal: true, Object: cm("x")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{secretRef("x", true)}}, podenv.Options{},
			podenv.Problem{Reason: "OptionalSecretNotFound", Message: `secret "x" not found`, Object: secret("x")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{secretRef("x", false)}}, podenv.Options{},
			podenv.Problem{Reason: "MandatorySecretNotFound", Message: `secret "x" not found`, Fatal: true, Object: secret("x")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("broken", true)}}, podenv.Options{},
			podenv.Problem{Reason: "FailedToReadOptionalConfigMap", Message: `failed to read configmap "ns/broken": boom`, Fatal: true, Object: cm("broken")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("broken")}}, podenv.Options{},
			podenv.Problem{Reason: "FailedToReadMandatoryConfigMap", Message: `failed to read configmap "ns/broken": boom`, Fatal: true, Object: cm("broken")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{secretRef("broken", true)}}, podenv.Options{},
			podenv.Problem{Reason: "FailedToReadOptionalSecret", Message: `failed to read secret "ns/broken": boom`, Fatal: true, Object: secret("broken")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{secretRef("broken")}}, podenv.Options{},
			podenv.Problem{Reason: "FailedToReadMandatorySecret", Message: `failed to read secret "ns/broken": boom`, Fatal: true, Object: secret("broken")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromConfigMap("V", "cm", "k", true)}}, podenv.Options{},
			podenv.Problem{Reason: "OptionalConfigMapKeyNotFound", Message: `key "k" not found in configmap "ns/cm"`, Object: cm("cm")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromConfigMap("V", "cm", "k")}}, podenv.Options{},
			podenv.Problem{Reason: "MandatoryConfigMapKeyNotFound", Message: `key "k" not found in configmap "ns/cm"`, Fatal: true, Object: cm("cm")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromSecret("V", "s", "k", true)}}, podenv.Options{},
			podenv.Problem{Reason: "OptionalSecretKeyNotFound", Message: `key "k" not found in secret "ns/s"`, Object: secret("s")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromSecret("V", "s", "k")}}, podenv.Options{},
			podenv.Problem{Reason: "MandatorySecretKeyNotFound", Message: `key "k" not found in secret "ns/s"`, Fatal: true, Object: secret("s")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromSecret("V", "x", "k")}}, podenv.Options{},
			podenv.Problem{Reason: "MandatorySecretNotFound", Message: `secret "x" not found`, Fatal: true, Object: secret("x")},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromConfigMap("V", "broken", "k", true)}}, podenv.Options{},
			podenv.Problem{Reason: "FailedToReadOptionalConfigMap", Message: `failed to read configmap "ns/broken": boom`, Fatal: true, Object: cm("broken")},
		},
		{
			corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("odd")}}, podenv.Options{},
			podenv.Problem{
				Reason:  "InvalidEnvironmentVariableNames",
				Message: `keys [, eq=, é] of configmap "ns/odd" were skipped: they are no valid names of environment variables`, Object: cm("odd"),
			},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromField("V", "spec.priority")}}, podenv.Options{},
			podenv.Problem{
				Reason:  "InvalidEnvironmentVariableSource",
				Message: `environment variable "V" of container "c": unsupported fieldPath "spec.priority"`, Fatal: true,
			},
		},
		{
			corev1.Container{Env: []corev1.EnvVar{fromResource("V", "none", "limits.cpu", "")}}, podenv.Options{},
			podenv.Problem{
				Reason:  "InvalidEnvironmentVariableSource",
				Message: `environment variable "V" of container "c": container "none" not found`, Fatal: true,
			},
		},
		{
			corev1.Container{}, podenv.Options{MasterServiceNamespace: "none"},
			podenv.Problem{
				Reason:  "FailedToReadServices",
				Message: `failed to read the services of namespace "none": boom`, Fatal: true, Object: podenv.Object{Kind: "Namespace", Name: "none"},
			},
		},
	} {
		t.Run(tc.want.Reason, func(t *testing.T) {
			pod := newPod(tc.container)
			problems, err := podenv.Resolve(pod, broken(), tc.opts)
			if len(problems) != 1 || problems[0] != tc.want {
				t.Errorf("got %+v, want %+v", problems, tc.want)
			}
			if (err != nil) != tc.want.Fatal {
				t.Errorf("error %v, fatal %v", err, tc.want.Fatal)
			}
			if err != nil && !strings.Contains(err.Error(), tc.want.Message) {
				t.Errorf("%v does not say %s", err, tc.want.Message)
			}
		})
	}
}

func TestOddNamesThatAreValid(t *testing.T) {
	pod := newPod(corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("odd")}})
	if _, err := podenv.Resolve(pod, objects(), podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	wantEnv(t, pod.Spec.Containers[0].Env, "1st=one", "with space=two")
}

func TestOneErrorNamesAllAndProblemsAreNotRepeated(t *testing.T) {
	c := corev1.Container{
		EnvFrom: []corev1.EnvFromSource{configMapRef("x"), secretRef("o", true)},
		Env:     []corev1.EnvVar{fromSecret("V", "y", "k"), fromSecret("W", "s", "k1"), fromSecret("X", "s", "k2")},
	}
	pod := newPod(c)
	second := *c.DeepCopy()
	second.Name = "d"
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	problems, err := podenv.Resolve(pod, objects(), podenv.Options{})
	if len(problems) != 5 {
		t.Errorf("%d problems: %+v", len(problems), problems)
	}
	const want = `resolve the environment of pod "ns/p": configmap "x" not found; secret "y" not found; ` +
		`key "k1" not found in secret "ns/s"; key "k2" not found in secret "ns/s"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if errdefs.IsNotFound(err) {
		t.Error("the error says that the pod was not found")
	}
	for _, p := range problems {
		if strings.Contains(p.Message, "hunter2") || strings.Contains(p.Message, "s-a") {
			t.Errorf("a secret's value is in %q", p.Message)
		}
	}
}

func TestErrorKeepsTheClassOfAFailedRead(t *testing.T) {
	f := objects()
	f.errs = map[string]error{"secret ns/s": errdefs.AsRetryAfter(errors.New("busy"), time.Minute)}
	_, err := podenv.Resolve(newPod(corev1.Container{EnvFrom: []corev1.EnvFromSource{secretRef("s"), configMapRef("x")}}), f, podenv.Options{})
	if delay, ok := errdefs.RetryAfter(err); !ok || delay != time.Minute {
		t.Errorf("retry after %v, %v", delay, ok)
	}
}

func TestAsksOnceAndOnlyForWhatIsNamed(t *testing.T) {
	c := corev1.Container{
		EnvFrom: []corev1.EnvFromSource{configMapRef("cm"), configMapRef("cm"), secretRef("none", true)},
		Env: []corev1.EnvVar{
			fromConfigMap("A", "cm", "a"), fromConfigMap("B", "cm", "b"), fromSecret("C", "s", "a"),
			fromSecret("D", "none", "a", true), fromConfigMap("E", "gone", "a", true),
		},
	}
	pod := newPod(c)
	pod.Spec.EnableServiceLinks = nil
	pod.Spec.InitContainers = []corev1.Container{*c.DeepCopy(), *c.DeepCopy()}
	f := objects()
	if _, err := podenv.Resolve(pod, f, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"configmap ns/cm": 1, "secret ns/none": 1, "secret ns/s": 1, "configmap ns/gone": 1,
		"services ns/": 1, "services default/": 1,
	}
	if !reflect.DeepEqual(f.asked, want) {
		t.Errorf("asked for %v, want %v", f.asked, want)
	}
}

// nilSource returns nothing and no error, as a careless Source may.
type nilSource struct{}

func (nilSource) ConfigMap(string, string) (*corev1.ConfigMap, error) { return nil, nil }
func (nilSource) Secret(string, string) (*corev1.Secret, error)       { return nil, nil }
func (nilSource) Services(string) ([]*corev1.Service, error)          { return []*corev1.Service{nil}, nil }

func TestNilObjectsAreNotFound(t *testing.T) {
	pod := newPod(corev1.Container{EnvFrom: []corev1.EnvFromSource{configMapRef("cm"), secretRef("s")}})
	problems, err := podenv.Resolve(pod, nilSource{}, podenv.Options{})
	if err == nil || len(problems) != 2 || problems[1].Reason != podenv.ReasonMandatorySecretNotFound {
		t.Errorf("got %+v, %v", problems, err)
	}
}

func TestDeterministicOrder(t *testing.T) {
	f := objects()
	f.services = []*corev1.Service{service("ns", "b", "10.0.0.2", "1"), service("ns", "a", "10.0.0.1", "1")}
	f.configMaps["ns/many"] = map[string]string{}
	for i := range 50 {
		f.configMaps["ns/many"][fmt.Sprint("k", i)] = "v"
	}
	var first []string
	for i := range 50 {
		slices.Reverse(f.services)
		pod := newPod(corev1.Container{
			Env: []corev1.EnvVar{value("Z", "1"), value("A", "2")}, EnvFrom: []corev1.EnvFromSource{configMapRef("many")},
		})
		pod.Spec.EnableServiceLinks = nil
		if _, err := podenv.Resolve(pod, f, podenv.Options{}); err != nil {
			t.Fatal(err)
		}
		got := lines(pod.Spec.Containers[0].Env)
		if i == 0 {
			first = got
		} else if !slices.Equal(got, first) {
			t.Fatalf("got %v, then %v", first, got)
		}
	}
}
