package nodeutil_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// documented is a row of the table of endpoints.
type documented struct {
	paths        []string
	methods      []string // none: all answer the same
	verbs        []string // one for each method, or one
	subresources []string
	answers      []int
}

var (
	codeSpan = regexp.MustCompile("`(/[^`]*)`")
	status   = regexp.MustCompile(`\b[1-5][0-9][0-9]\b`)
)

// documentation reads the table of endpoints in docs/kubelet-api.md.
func documentation(t *testing.T) (rows []documented) {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubelet-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| path | methods |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Fatalf("this row has %d cells, want 5: %s", len(cells), line)
		}
		row := documented{verbs: list(cells[2]), subresources: list(cells[3])}
		for _, span := range codeSpan.FindAllStringSubmatch(cells[0], -1) {
			row.paths = append(row.paths, span[1])
		}
		if cells[1] != "—" {
			row.methods = list(cells[1])
		}
		for _, number := range status.FindAllString(cells[4], -1) {
			code, _ := strconv.Atoi(number)
			row.answers = append(row.answers, code)
		}
		rows = append(rows, row)
	}
	return rows
}

func list(cell string) []string { return strings.Split(cell, ", ") }

// asking is an Auth that refuses everything, and remembers what it was asked.
type asking struct {
	nodeutil.NodeRequestAttr
	verb         string
	subresources []string
}

func (*asking) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "me"}}, true, nil
}

func (a *asking) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.verb = attributes.GetVerb()
	a.subresources = append(a.subresources, attributes.GetSubresource())
	return authorizer.DecisionNoOpinion, "", nil
}

var allMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// attachedTo makes a node of the handler, with all routes on a mux.
func attachedTo(t *testing.T, handler node.PodLifecycleHandler, opts ...nodeutil.NodeOpt) (*http.ServeMux, *nodeutil.Node) {
	t.Helper()
	mux := http.NewServeMux()
	debug := func(cfg *nodeutil.NodeConfig) error {
		cfg.DebugHTTP = true
		return nil
	}
	n, err := nodeutil.NewNode("vk", making(handler), append([]nodeutil.NodeOpt{
		nodeutil.WithClient(fake.NewSimpleClientset()), handledBy(mux), debug, openTo(mux)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return mux, n
}

// begin has the pod controller of a node begin that does not run, until the test ends.
func begin(t *testing.T, n *nodeutil.Node) {
	t.Helper()
	end, err := nodeutil.BeginPods(t.Context(), n)
	t.Cleanup(end)
	if err != nil {
		t.Fatal(err)
	}
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// sample is a path that a documented one stands for.
func sample(path string) string {
	path = strings.ReplaceAll(path, "{profile}", "goroutine")
	return regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "x")
}

// What docs/kubelet-api.md says of methods, statuses and rights is so.
func TestDocumentedEndpoints(t *testing.T) {
	mux, n := attachedTo(t, &whole{})
	begin(t, n)
	for _, row := range documentation(t) {
		for _, path := range row.paths {
			for _, method := range allMethods {
				name, url := method+" "+path, sample(path)
				i := slices.Index(row.methods, method)
				if i < 0 && len(row.methods) > 0 {
					if w := ask(mux, method, url); w.Code != http.StatusMethodNotAllowed {
						t.Errorf("%s: answers %d %s, want 405", name, w.Code, w.Body)
					}
					continue
				}
				if strings.HasSuffix(path, "/profile") || strings.HasSuffix(path, "/trace") {
					url += "?seconds=1"
				}
				if w := ask(mux, method, url); !slices.Contains(row.answers, w.Code) {
					t.Errorf("%s: answers %d %s, documented are %v", name, w.Code, w.Body, row.answers)
				}
				if i < 0 && method != row.methodOfVerb() {
					continue
				}
				auth := &asking{NodeRequestAttr: nodeutil.NodeRequestAttr{NodeName: "vk"}}
				if w := ask(nodeutil.WithAuth(auth, mux), method, url); w.Code != http.StatusForbidden {
					t.Errorf("%s: answers %d although it is not allowed", name, w.Code)
				}
				if want := row.verbs[max(i, 0)]; auth.verb != want || !slices.Equal(auth.subresources, row.subresources) {
					t.Errorf("%s: authorized is %s of %q, documented %s of %q", name, auth.verb, auth.subresources, want, row.subresources)
				}
			}
		}
	}
}

// Logs and streams of pods that the node does not have are not the provider's to
// answer, which may know pods of others by the same name.
func TestOnlyPodsOfTheNodeAreShown(t *testing.T) {
	mux := http.NewServeMux()
	asked := make(chan string, 10)
	p := &askedForLogs{asked: asked}
	n, err := nodeutil.NewNode("vk", making(p), nodeutil.WithClient(fake.NewSimpleClientset(pod("web", "vk"), pod("other", "elsewhere"))),
		listenAnywhere, openTo(mux))
	if err != nil {
		t.Fatal(err)
	}
	if w := ask(mux, "GET", "/containerLogs/default/web/c"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("before the node knows its pods: %d %s", w.Code, w.Body)
	}
	run(t, n)
	if err := n.WaitReady(t.Context(), deadline); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/containerLogs/default/other/c", "/containerLogs/default/gone/c", "/containerLogs/kube-system/web/c",
		"/exec/default/web/another-uid/c?command=id&output=1", "/attach/default/other/c?output=1", "/portForward/default/other",
	} {
		if w := ask(mux, "GET", path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "does not exist") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ask(mux, "GET", "/containerLogs/default/web/c"); w.Code != http.StatusOK || w.Body.String() != "a line\n" {
		t.Errorf("the node's own pod: %d %s", w.Code, w.Body)
	}
	if w := ask(mux, "GET", "/exec/default/web/uid-of-web/c?command=id&output=1"); w.Code == http.StatusNotFound {
		t.Errorf("the node's own pod by its UID: %d %s", w.Code, w.Body)
	}
	if got := <-asked; got != "default/web" || len(asked) > 0 {
		t.Errorf("the provider was asked for the logs of %s, and %d times more", got, len(asked))
	}
}

type askedForLogs struct {
	whole
	asked chan<- string
}

func (p *askedForLogs) GetContainerLogs(ctx context.Context, namespace, name, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	p.asked <- namespace + "/" + name
	return p.whole.GetContainerLogs(ctx, namespace, name, container, opts)
}

// A summary that has volumes of claims shows in /metrics; a provider that hangs
// keeps nobody from the rest.
func TestVolumesInMetrics(t *testing.T) {
	p := &summing{summary: make(chan *stats.Summary, 1)}
	mux, n := attachedTo(t, p)
	begin(t, n)
	used := uint64(7)
	p.summary <- &stats.Summary{Pods: []stats.PodStats{{VolumeStats: []stats.VolumeStats{{
		PVCRef: &stats.PVCReference{Namespace: "ns", Name: "data"}, FsStats: stats.FsStats{UsedBytes: &used}}}}}}
	wantLines(t, scrape(t, mux, "/metrics"), `kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="data"} 7`)

	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as if the time were up
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "go_goroutines") || strings.Contains(w.Body.String(), "volume_stats") {
		t.Errorf("of a provider that hangs: %d %s", w.Code, w.Body)
	}
	p.summary <- nil
}

type summing struct {
	whole
	summary chan *stats.Summary
}

func (p *summing) GetStatsSummary(context.Context) (*stats.Summary, error) { return <-p.summary, nil }

// methodOfVerb is a method with the row's only verb.
func (d documented) methodOfVerb() string {
	if d.verbs[0] == "create" {
		return http.MethodPost
	}
	return http.MethodGet
}

// Every route has a row, with its methods, and every row with methods a route.
func TestAllEndpointsAreDocumented(t *testing.T) {
	handler := &whole{}
	_, n := attachedTo(t, handler)
	described, served := map[string]string{}, map[string]string{}
	for _, row := range documentation(t) {
		for _, path := range row.paths {
			if _, twice := described[path]; twice {
				t.Errorf("%s has two rows", path)
			}
			described[path] = fmt.Sprint(row.methods)
		}
	}
	for _, route := range nodeutil.RoutesOf(n, nodeutil.AsProvider(handler)) {
		path := strings.TrimSuffix(route.Pattern, "{$}")
		served[path] = fmt.Sprint(route.Methods)
		if methods, ok := described[path]; !ok || methods != served[path] {
			t.Errorf("%s is served with methods %v, docs/kubelet-api.md has %v", path, route.Methods, methods)
		}
	}
	for path, methods := range described {
		if _, ok := served[path]; !ok && methods != "[]" {
			t.Errorf("%s is documented, but there is no such route", path)
		}
	}
	if len(served) < 40 {
		t.Errorf("only %d routes were found", len(served))
	}
}
