package stackpath

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
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
	return plain{grouptest.Serve(t, stackpathtest.New(w)).Transport(t)}
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
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: "POST", podgroup.ActionList: "GET"},
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
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("5Gi")}
		cluster.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		u, err := world.OfPod("web")
		sent, _ := u.Spec.Data.(string)
		if want := `"command":["nginx","-g","daemon off;"]`; err != nil || !strings.Contains(sent, want) || !strings.Contains(sent, `{"cpu":"2","memory":"8Gi"}`) || !strings.Contains(sent, `"values":["DFW"]`) {
			t.Errorf("sent: %s, %v", sent, err)
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
			if err := p.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), want) {
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
		world.Refuse("GET//", 1, &grouptest.Refusal{Status: http.StatusInternalServerError})
		page, err := b.List(t.Context(), map[string]string{podgroup.TagNodeName: "vk"}, "")
		if err != nil || len(page.Units) != 2 || page.Units[0].Unknown == page.Units[1].Unknown {
			t.Errorf("%+v, %v", page, err)
		}
		world.Refuse("GET", 1, &grouptest.Refusal{Status: http.StatusUnauthorized})
		if _, err := b.List(t.Context(), nil, ""); err == nil {
			t.Error("a list with a token that has ended")
		}
		const actionToken = "POST////"
		before := world.Calls(actionToken)
		if _, err := b.List(t.Context(), nil, ""); err != nil || world.Calls(actionToken) != before+1 {
			t.Errorf("%d tokens, %v", world.Calls(actionToken)-before, err)
		}
	})
	day := func(n int) time.Time { return time.Date(2024, 1, n, 0, 0, 0, 0, time.UTC) }
	for _, all := range [][]instance{
		{{Phase: "RUNNING", CreatedAt: day(2)}, {Phase: "FAILED", CreatedAt: day(1), DeletedAt: day(2)}},
		{{Phase: "FAILED", CreatedAt: day(3), DeletedAt: day(3)}, {Phase: "RUNNING", CreatedAt: day(2)}},
		{{Phase: "FAILED", CreatedAt: day(1)}, {Phase: "RUNNING", CreatedAt: day(2)}},
	} {
		if found := newest(all); found == nil || found.Phase != "RUNNING" {
			t.Errorf("of %+v it is %+v", all, found)
		}
	}
	var u podgroup.Unit
	if (&instance{Phase: "INSTANCE_PHASE_UNSPECIFIED"}).addTo(&u); !u.Unknown || u.Phase == podgroup.Failed || newest(nil) != nil {
		t.Errorf("%+v", u)
	}
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
