package nodeutil_test

import (
	"context"
	"fmt"
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

	"github.com/virtual-kubelet/virtual-kubelet/node"
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
		nodeutil.WithClient(fake.NewSimpleClientset()), handledBy(mux), debug, nodeutil.AttachProviderRoutes(mux)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return mux, n
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
	mux, _ := attachedTo(t, &whole{})
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
