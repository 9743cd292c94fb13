package stackpath

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/providers/stackpath/stackpathtest"
)

func testConfig() Config {
	return Config{StackID: "stack", ClientID: "id", ClientSecret: "hush", CityCode: "dfw", ClusterName: "home"}
}

// plain sends requests for https over connections without certificates.
type plain struct{ http.RoundTripper }

func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return p.RoundTripper.RoundTrip(r)
}

func connect(t *testing.T, w *grouptest.World) http.RoundTripper {
	t.Helper()
	return plain{grouptest.Serve(t, stackpathtest.New(w), w).Transport(t)}
}

func TestSuite(t *testing.T) {
	const endless = "a workload starts its container again whenever it ends"
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			b, err := newBackend(testConfig(), connect(t, w))
			if err != nil {
				t.Fatal(err)
			}
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: stackpathtest.ActionCreate, podgroup.ActionList: stackpathtest.ActionList},
		Budget:  1_000_000, // none is published
		Skip: map[string]string{
			"a pod's life": endless, "a pod ends while the agent is away": endless,
			"an unchanged node costs one list a round": "the state of each workload takes a call",
		},
	}.Run(t)
}

func TestWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
		b, err := newBackend(testConfig(), connect(t, world))
		if err != nil {
			t.Fatal(err)
		}
		p, _ := cluster.Start(t, b, b.options())
		pod := grouptest.NewPod("web")
		pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = []string{"nginx"}, []string{"-g", "daemon off;"}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("5Gi")}
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		u, err := world.OfPod("web")
		if err != nil {
			t.Fatal(err)
		}
		var sent, want struct {
			Workload struct{ Spec, Targets any }
		}
		const text = `{"workload": {
			"spec": {
				"containers": {"main": {
					"image": "busybox:1", "command": ["nginx", "-g", "daemon off;"], "env": {"A": {"value": "b"}}, "ports": {"port-0": {"port": 80, "protocol": "TCP"}},
					"resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "2", "memory": "8Gi"}}
				}},
				"imagePullCredentials": [], "networkInterfaces": [{"network": "default", "enableOneToOneNat": true}]
			},
			"targets": {"city-code": {"spec": {"deploymentScope": "cityCode", "deployments": {
				"minReplicas": 1, "maxReplicas": 1, "selectors": [{"key": "cityCode", "operator": "in", "values": ["DFW"]}]
			}}}}
		}}`
		if err := errors.Join(json.Unmarshal([]byte(u.Spec.Data.(string)), &sent), json.Unmarshal([]byte(text), &want)); err != nil || !reflect.DeepEqual(sent, want) {
			t.Errorf("sent: %s, %v", u.Spec.Data, err)
		}
		time.Sleep(time.Minute)
		if err := world.Exit("web", "main", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // the token has ended
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil || status.Phase != corev1.PodRunning || status.PodIP == "" || status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("%+v, %v", status, err)
		}
		for want, change := range map[string]func(*corev1.PodSpec){
			"restartPolicy Never": func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever },
			"2 containers":        func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "b", Image: "b"}) },
			"without a command":   func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"-v"} },
		} {
			pod := grouptest.NewPod("refused")
			change(&pod.Spec)
			cluster.SetPod(pod)
			if err := p.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.HasPrefix(err.Error(), "ProviderNotSupported: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}

// A workload whose instance cannot be read, or is not there yet, does not keep the node from the
// others, and its pod stays as it is; of several instances the one that is not deleted counts.
func TestInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
		b, err := newBackend(testConfig(), connect(t, world))
		if err != nil {
			t.Fatal(err)
		}
		p, _ := cluster.Start(t, b, b.options())
		for _, name := range []string{"a", "b"} {
			pod := grouptest.NewPod(name)
			cluster.SetPod(pod)
			if err := p.CreatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		world.Refuse(stackpathtest.ActionInstances, 1, &grouptest.Refusal{Status: http.StatusInternalServerError})
		page, err := b.List(t.Context(), map[string]string{podgroup.TagNodeName: "vk"}, "")
		if err != nil || len(page.Units) != 2 || page.Units[0].Unknown == page.Units[1].Unknown {
			t.Errorf("%+v, %v", page, err)
		}
		before := world.Calls(stackpathtest.ActionToken)
		world.Refuse(stackpathtest.ActionList, 1, &grouptest.Refusal{Status: http.StatusUnauthorized}) // the token has ended
		if _, err := b.List(t.Context(), nil, ""); err != nil || world.Calls(stackpathtest.ActionToken) != before+1 {
			t.Errorf("%d tokens, %v", world.Calls(stackpathtest.ActionToken)-before, err)
		}
	})
	day := func(n int) time.Time { return time.Date(2024, 1, n, 0, 0, 0, 0, time.UTC) }
	for _, all := range [][]instance{
		{{Phase: "RUNNING", CreatedAt: day(2)}, {Phase: "FAILED", CreatedAt: day(1), DeletedAt: day(2)}},
		{{Phase: "FAILED", CreatedAt: day(3), DeletedAt: day(3)}, {Phase: "RUNNING", CreatedAt: day(2)}},
		{{Phase: "FAILED", CreatedAt: day(1)}, {Phase: "RUNNING", CreatedAt: day(2)}},
	} {
		if found := slices.MaxFunc(all, byAge); found.Phase != "RUNNING" {
			t.Errorf("of %+v it is %+v", all, found)
		}
	}
	for _, test := range []struct {
		of   instance
		want podgroup.Unit
	}{
		{instance{Phase: "INSTANCE_PHASE_UNSPECIFIED"}, podgroup.Unit{Unknown: true}},
		{instance{Phase: "STARTING"}, podgroup.Unit{Phase: podgroup.Pending}},
		{instance{Phase: "COMPLETED", Reason: "Done"}, podgroup.Unit{Phase: podgroup.Failed, Failure: &podspec.Failure{Reason: "Done"}}},
		{instance{Phase: "FAILED", DeletedAt: day(1)}, podgroup.Unit{Phase: podgroup.Stopping}},
	} {
		u := podgroup.Unit{Unknown: true}
		test.want.IPs = []string{}
		if test.of.addTo(&u); !reflect.DeepEqual(u, test.want) {
			t.Errorf("of %+v it is %+v", test.of, u)
		}
	}
}

// Only an answer of the API says that a workload is gone, and not one of a proxy before it.
func TestProxy(t *testing.T) {
	b, err := newBackend(testConfig(), proxy{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), &podgroup.Unit{ID: "web"}, 0); !errdefs.IsUnavailable(err) {
		t.Errorf("the error of a deletion is %v, of class %s", err, errdefs.ClassOf(err))
	}
}

// proxy gives a token, and knows no other page.
type proxy struct{}

func (proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusNotFound, "<html>no such page</html>"
	if strings.HasSuffix(r.URL.Path, "/token") {
		status, body = http.StatusOK, `{"access_token": "t", "expires_in": 3600}`
	}
	return &http.Response{Status: http.StatusText(status), StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// Answers that are half of a list, or of something else, lose no pod.
func TestHalfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
		transport := &swapped{RoundTripper: connect(t, world)}
		b, err := newBackend(testConfig(), transport)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := cluster.Start(t, b, b.options())
		pod := grouptest.NewPod("web")
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil {
			t.Fatal(err)
		}
		pod = cluster.Pod(pod.Namespace, pod.Name).DeepCopy()
		pod.Status = *status
		cluster.SetPod(pod)
		for list, want := range map[string]string{
			`{}`: "there is workload", `null`: "there is workload", `{"error": "try again"}`: "there is workload", `{"results": []}`: "there is workload",
			`{"results": [], "pageInfo": {"hasNextPage": true}}`: "does not say where", `{"results": [`: "cannot be read", ``: "cannot be read", `<html>`: "cannot be read",
		} {
			transport.list.Store(&list)
			time.Sleep(time.Minute)
			if pods, err := p.GetPods(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %d pods, %v", list, len(pods), err)
			}
		}
		transport.list.Store(nil)
		time.Sleep(time.Minute)
		if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("%d pods, %v", len(pods), err)
		}
		if err := b.ConfirmEmpty(t.Context(), "other", nil); err != nil {
			t.Errorf("a workload that there is not: %v", err)
		}
	})
}

// swapped has another answer to lists.
type swapped struct {
	http.RoundTripper
	list atomic.Pointer[string]
}

func (s *swapped) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(r)
	if list := s.list.Load(); err == nil && list != nil && strings.HasSuffix(r.URL.Path, "/workloads") {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(strings.NewReader(*list))
	}
	return response, err
}

// The API may repeat what was sent.
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
		b, err := newBackend(testConfig(), connect(t, world))
		if err != nil {
			t.Fatal(err)
		}
		p, _ := cluster.Start(t, b, b.options())
		pod := grouptest.NewPod("web")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "resolved-password"}}
		pod.Spec.Containers[0].Image, pod.Spec.ImagePullSecrets = "registry.example/web:1", []corev1.LocalObjectReference{{Name: "login"}}
		cluster.SetSecret("login", corev1.SecretTypeDockerConfigJson, map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths": {"registry.example": {"username": "me", "password": "hunter2"}}}`),
		})
		cluster.SetPod(pod)
		for _, call := range []struct{ action, repeated string }{{stackpathtest.ActionToken, "not valid: hush"}, {stackpathtest.ActionCreate, "not valid: resolved-password, hunter2"}} {
			world.Refuse(call.action, 1, &grouptest.Refusal{Status: http.StatusBadRequest, Message: call.repeated})
			err := p.CreatePod(t.Context(), pod)
			if err == nil || !strings.Contains(err.Error(), "not valid: [secret]") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", call.action, err)
			}
		}
	})
}

// A file and variables as the users of the older provider have them.
func TestUsersConfiguration(t *testing.T) {
	c, err := ParseConfig([]byte("account_id: a\nstack_id: s\nclient_id: i\nclient_secret: hush\ncity_code: lax\n"))
	if err == nil {
		err = c.Merge(func(name string) string {
			return map[string]string{"SP_API_HOST": "api.example", "SP_CITY_CODE": "dfw"}[name]
		})
	}
	if err == nil {
		err = c.Complete()
	}
	if err != nil || c.BaseURL != "api.example" || c.CityCode != "DFW" || c.StackID != "s" || c.ClientSecret.Reveal() != "hush" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseConfig([]byte("stackid: s")); !errdefs.IsInvalidInput(err) {
		t.Errorf("an unknown field: %v", err)
	}
	if _, _, err := New(grouptest.NewCluster("a").Config(), Config{StackID: "s"}); !errdefs.IsInvalidInput(err) {
		t.Errorf("without credentials: %v", err)
	}
}
