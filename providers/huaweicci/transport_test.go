package huaweicci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/internal/ccigateway"
)

// behind starts a gateway before a handler, and returns it with a client.
func behind(t *testing.T, options ccigateway.Options, change func(*Config), handler http.HandlerFunc) (*ccigateway.Gateway, *clientset.Clientset) {
	t.Helper()
	backend := httptest.NewServer(handler)
	t.Cleanup(backend.Close)
	gateway := ccigateway.Start(t, &rest.Config{Host: backend.URL}, options)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, gateway.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Project: "guests", Region: ccigateway.Region, Endpoint: gateway.URL, CAFile: caFile, ProjectID: ccigateway.ProjectID, API: APIv1}
	if options.V2 {
		c.API = APIv2
	}
	c.keys = keys{access: ccigateway.AccessKey, secret: ccigateway.SecretKey}
	if change != nil {
		change(&c)
	}
	if err := c.complete(c.checkAccess()); err != nil {
		t.Fatal(err)
	}
	config, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType = "application/json"
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return gateway, client
}

func withUser(c *Config) {
	c.keys = keys{}
	c.IAM.User, c.IAM.Domain, c.IAM.Password, c.IAM.Endpoint = ccigateway.User, ccigateway.Domain, ccigateway.Password, c.Endpoint
}

func answerJSON(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

const onePod = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "one", "labels": {"a": "b"}}}`

// Both ways of authentication work for plain requests, in both generations.
func TestAuthentication(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"keys": nil, "token": withUser,
		"temporary keys": func(c *Config) { c.keys.securityToken = "temporary" },
	} {
		for _, v2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %t", what, v2), func(t *testing.T) {
				gateway, client := behind(t, ccigateway.Options{V2: v2}, change, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization")+r.Header.Get("X-Auth-Token") != "" {
						t.Error("the gateway passes credentials on")
					}
					answerJSON(w, http.StatusOK, onePod)
				})
				pod, err := client.CoreV1().Pods("guests").Get(t.Context(), "one", metav1.GetOptions{})
				if err != nil || pod.Name != "one" {
					t.Fatalf("%v, %v; refused: %q", pod, err, gateway.Refused())
				}
				if _, err := client.CoreV1().Pods("guests").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
					t.Errorf("a pod in a namespace without a network: %v", err)
				}
			})
		}
	}
}

// Wrong credentials are an error with the words of the gateway, and no word of a secret.
func TestWrongCredentials(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"verify aksk signature fail": func(c *Config) { c.keys.secret = "hush" },
		"get access key fail":        func(c *Config) { c.keys = keys{access: "hush", secret: "hush"} },
		"IAM gives no token":         func(c *Config) { withUser(c); c.IAM.Password = "hush" },
		"no such project":            func(c *Config) { c.ProjectID = "other" },
	} {
		_, client := behind(t, ccigateway.Options{}, change, nil)
		_, err := client.CoreV1().Pods("guests").Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "hush") {
			t.Errorf("want %s, got %v", what, err)
		}
	}
}

// What is changed between the signature and the gateway is refused.
func TestTampering(t *testing.T) {
	for what, change := range map[string]func(*http.Request){
		"nothing": func(*http.Request) {},
		"method":  func(r *http.Request) { r.Method = http.MethodPut },
		"path":    func(r *http.Request) { r.URL.Path += "x" },
		"query":   func(r *http.Request) { r.URL.RawQuery += "&dryRun=All" },
		"body":    func(r *http.Request) { withBody(r, []byte(`{"kind":"Secret"}`)) },
		"project": func(r *http.Request) { r.Header.Del(headerProject) },
		"date":    func(r *http.Request) { r.Header.Set(headerDate, time.Now().Add(time.Minute).UTC().Format(dateFormat)) },
		"clock": func(r *http.Request) {
			keys{access: ccigateway.AccessKey, secret: ccigateway.SecretKey}.sign(r, []byte(`{"kind":"ConfigMap"}`), time.Now().Add(-20*time.Minute))
		},
		"a header that is not signed": func(r *http.Request) { r.Header.Set("Accept-Language", "de") },
	} {
		gateway, _ := behind(t, ccigateway.Options{}, nil, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusCreated, "{}") })
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(gateway.CA)
		base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		t.Cleanup(base.CloseIdleConnections)
		client := http.Client{Transport: &transport{
			host: strings.TrimPrefix(gateway.URL, "https://"), api: APIv1, projectID: ccigateway.ProjectID, keys: keys{access: ccigateway.AccessKey, secret: ccigateway.SecretKey},
			base: roundTripper(func(r *http.Request) (*http.Response, error) { change(r); return base.RoundTrip(r) }),
		}}
		response, err := client.Post(gateway.URL+"/api/v1/namespaces/guests/configmaps?fieldManager=x", contentJSON, strings.NewReader(`{"kind":"ConfigMap"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		want := http.StatusUnauthorized
		if what == "nothing" || strings.HasPrefix(what, "a header") {
			want = http.StatusCreated
		}
		if response.StatusCode != want {
			t.Errorf("%s: %s; refused: %q", what, response.Status, gateway.Refused())
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A token is used until shortly before its end, and renewed once it is refused.
func TestTokens(t *testing.T) {
	get := func(t *testing.T, client *clientset.Clientset) {
		t.Helper()
		if _, err := client.CoreV1().Pods("guests").Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, onePod) }
	gateway, client := behind(t, ccigateway.Options{}, withUser, pod)
	get(t, client)
	get(t, client)
	if n := gateway.Issued(); n != 1 {
		t.Errorf("two requests took %d tokens", n)
	}
	gateway.RevokeTokens()
	get(t, client)
	if n := gateway.Issued(); n != 2 {
		t.Errorf("after the tokens were revoked there are %d", n)
	}
	gateway, client = behind(t, ccigateway.Options{TokenLife: tokenMargin - time.Minute}, withUser, pod)
	get(t, client)
	get(t, client)
	if n := gateway.Issued(); n != 2 {
		t.Errorf("two requests with tokens that end soon took %d", n)
	}
}

// An IAM that does not answer delays requests, but not for ever.
func TestIAMDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		tokens, err := newTokens(client, &IAM{User: "robot", Endpoint: "https://iam.example.com"}, "p")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.get(context.Background(), ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// answers is a transport with the answers of f, which counts the requests.
func answers(asked *int, f func(r *http.Request) (code int, header http.Header, body string)) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		*asked++
		code, header, body := f(r)
		return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})}
}

// IAM is not asked again at once after it has refused the user, nor for one token after the
// other while the service refuses all of them.
func TestIAMIsNotAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, wrong := 0, true
		tokens, err := newTokens(answers(&asked, func(*http.Request) (int, http.Header, string) {
			if wrong {
				return http.StatusUnauthorized, http.Header{}, `{"error_msg": "The username or password is wrong."}`
			}
			return http.StatusCreated, http.Header{"X-Subject-Token": {fmt.Sprint("token", asked)}}, fmt.Sprintf(`{"token": {"expires_at": %q}}`, time.Now().Add(24*time.Hour).Format(time.RFC3339))
		}), &IAM{User: "robot", Endpoint: "https://iam.example.com"}, "p")
		if err != nil {
			t.Fatal(err)
		}
		get := func(refused, want string, wantAsked int) {
			t.Helper()
			if token, err := tokens.get(t.Context(), refused); token != want || (err != nil) != (want == "") || asked != wantAsked {
				t.Errorf("got %q, %v, after %d requests, want %q after %d", token, err, asked, want, wantAsked)
			}
		}
		get("", "", 1)
		get("", "", 1)
		time.Sleep(tokenDelay)
		get("", "", 2)
		wrong = false
		time.Sleep(tokenDelay)
		get("", "token3", 3)
		get("token3", "token4", 4)
		get("token3", "token4", 4)
		get("token4", "token4", 4)
		time.Sleep(tokenDelay)
		get("token4", "token5", 5)
	})
}

// Who is not the service gets neither a token nor a signature, and nobody but IAM the
// password.
func TestRedirects(t *testing.T) {
	asked := 0
	elsewhere := answers(&asked, func(r *http.Request) (int, http.Header, string) {
		if r.URL.Host == "elsewhere.example.com" || r.URL.Scheme != "https" {
			t.Errorf("%s gets %v", r.URL, r.Header)
		}
		to := "https://elsewhere.example.com/"
		if strings.HasSuffix(r.URL.Path, "/plain") {
			to = "http://cci.example.com/"
		}
		return http.StatusTemporaryRedirect, http.Header{"Location": {to}}, ""
	})
	tokens, err := newTokens(elsewhere, &IAM{User: "robot", Password: "hush", Endpoint: "https://iam.example.com"}, "p")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := tokens.get(t.Context(), ""); err == nil || asked != 1 {
		t.Errorf("IAM that redirects gives %q, after %d requests", token, asked)
	}
	tokens.token, tokens.expires = "token", time.Now().Add(time.Hour)
	for _, of := range []*transport{{keys: keys{access: "k", secret: "s"}}, {tokens: tokens}} {
		of.base, of.host, of.api = elsewhere.Transport, "cci.example.com", APIv1
		for _, path := range []string{"/pods", "/plain"} {
			response, err := (&http.Client{Transport: of}).Get("https://cci.example.com" + path)
			if err == nil {
				_ = response.Body.Close()
				t.Errorf("%s: a redirect was followed to %v", path, response.Request.URL)
			} else if !strings.Contains(err.Error(), "redirects to") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// Objects, lists, errors and watches of CCI 2.0 are as Kubernetes has them, and only of what
// the selector selects.
func TestDialect(t *testing.T) {
	var sent atomic.Value
	_, client := behind(t, ccigateway.Options{V2: true, Watches: true}, nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent.Store(r.Method + " " + r.URL.Path + " " + string(body))
		switch {
		case r.URL.Query().Get("watch") == "true":
			w.Header().Set("Content-Type", "application/json")
			for i, labels := range []string{`{"a": "b"}`, `{"a": "c"}`, `{"a": "b"}`, `{"a": "c"}`} {
				kind := []string{"ADDED", "ADDED", "MODIFIED", "MODIFIED"}[i]
				_, _ = fmt.Fprintf(w, `{"type": %q, "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "%d", "labels": %s}}}`, kind, i, labels)
			}
		case strings.HasSuffix(r.URL.Path, "/empty"):
			answerJSON(w, http.StatusOK, `{}`)
		case strings.HasSuffix(r.URL.Path, "/absent"):
			answerJSON(w, http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "absent", "kind": "pods"}}`)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			answerJSON(w, http.StatusOK, `{"kind": "PodList", "apiVersion": "v1", "items": [`+onePod+`, {"metadata": {"name": "foreign"}}]}`)
		case strings.HasSuffix(r.URL.Path, "/log"):
			answerJSON(w, http.StatusOK, `{"apiVersion": "cci/v2"}`)
		default:
			answerJSON(w, http.StatusOK, string(body))
		}
	})
	pods := client.CoreV1().Pods("guests")
	if list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "a=b", Limit: 10}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "one" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, err := pods.Get(t.Context(), "absent", metav1.GetOptions{}); !apierror.IsNotFound(err) {
		t.Errorf("an absent pod: %v", err)
	}
	if pod, err := pods.Get(t.Context(), "empty", metav1.GetOptions{}); err == nil || apierror.IsNotFound(err) {
		t.Errorf("an answer without a pod is %+v, %v", pod, err)
	}
	if _, err := client.AppsV1().Deployments("guests").Get(t.Context(), "absent", metav1.GetOptions{}); err == nil || apierror.IsNotFound(err) || !strings.Contains(err.Error(), "APIGW.0101") {
		t.Errorf("a kind that the gateway does not have: %v", err)
	}
	if text, err := pods.GetLogs("one", &corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil || string(text) != `{"apiVersion": "cci/v2"}` {
		t.Errorf("the log was changed to %q, %v", text, err)
	}
	watching, err := pods.Watch(t.Context(), metav1.ListOptions{LabelSelector: "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for event := range watching.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			seen = append(seen, string(event.Type)+pod.Name)
		}
	}
	if got := strings.Join(seen, " "); got != "ADDED0 MODIFIED2 DELETED3" {
		t.Errorf("the watch has %s", got)
	}
	yes := true
	if _, err := pods.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: "NotOlderThan"}); !apierrors.IsInvalid(err) {
		t.Errorf("a list as a watch: %v", err)
	}
	for uid, want := range map[string]string{"": "POST /api/v1/namespaces/guests/configmaps ", "u1": "PUT /api/v1/namespaces/guests/configmaps/c "} {
		object := corev1ac.ConfigMap("c", "guests").WithData(map[string]string{"k": "v"}).WithResourceVersion("9")
		if uid != "" {
			object.WithUID("u1")
		}
		applied, err := client.CoreV1().ConfigMaps("guests").Apply(t.Context(), object, metav1.ApplyOptions{FieldManager: "virtual-kubelet", Force: true})
		got, _ := sent.Load().(string)
		if err != nil || applied.Data["k"] != "v" || !strings.HasPrefix(got, want) || strings.Contains(got, `"resourceVersion":"9"`) != (uid != "") || !strings.Contains(got, `"apiVersion":"v1"`) {
			t.Errorf("applied with UID %q: %v; sent was %s", uid, err, got)
		}
	}
}

// Without watches a watch is answered with a list: an error, so that the client lists again.
func TestNoWatches(t *testing.T) {
	_, client := behind(t, ccigateway.Options{V2: true}, nil, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, `{"kind": "PodList", "apiVersion": "v1", "items": []}`)
	})
	watching, err := client.CoreV1().Pods("guests").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	event, ok := <-watching.ResultChan()
	if text, _ := json.Marshal(event); ok && !strings.Contains(string(text), "ERROR") {
		t.Errorf("the watch has %s", text)
	}
}
