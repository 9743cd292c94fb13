package nodeutil_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// guarded serves /metrics to clients that the option allows; it returns a function that
// asks for it.
func guarded(t *testing.T, opts ...nodeutil.WebhookAuthOption) (ask func(config *tls.Config) int) {
	t.Helper()
	v := &reviewer{allowed: map[string]string{"crew-member": "metrics", user.Anonymous: "metrics"}}
	auth, err := nodeutil.WebhookAuth(v.client(t), "vk", opts...)
	if err != nil {
		t.Fatal(err)
	}
	address := serving(t, handledBy(nodeutil.WithAuth(auth, answering("hello"))))
	return func(config *tls.Config) int {
		t.Helper()
		status, _, err := get(t, "https://"+address+"/metrics", config)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
}

func TestClientCAFollowsItsFile(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	path := write(t, "ca.crt", first.pem)
	ask := guarded(t, nodeutil.WithClientCAFile(path))
	if a, b := ask(first.client(t, "crew-member")), ask(second.client(t, "crew-member")); a != 200 || b != 401 {
		t.Fatalf("at first: %d and %d, want 200 and 401", a, b)
	}
	overwrite(t, path, []byte("rubbish"))
	for range 3 {
		if got := ask(first.client(t, "crew-member")); got != 200 {
			t.Errorf("with rubbish in the file: %d, want the CA before", got)
		}
	}
	overwrite(t, path, append(first.pem, second.pem...))
	eventually(t, "both CAs are accepted", func() bool { return ask(second.client(t, "crew-member")) == 200 })
	if got := ask(first.client(t, "crew-member")); got != 200 {
		t.Errorf("the first of two CAs: %d", got)
	}
	// The way in which mounted secrets change.
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.Symlink(write(t, "ca.crt", second.pem), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first CA is no longer accepted", func() bool { return ask(first.client(t, "crew-member")) == 401 })
}

func TestClientCAFileMustBeRightAtFirst(t *testing.T) {
	for name, path := range map[string]string{"rubbish": write(t, "ca.crt", []byte("rubbish")), "nothing": "/nowhere/ca.crt"} {
		_, err := nodeutil.WebhookAuth((&reviewer{}).client(t), "vk", nodeutil.WithClientCAFile(path))
		wantError(t, err, path)
		if !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: %v is not of class InvalidInput", name, err)
		}
	}
}

// publishedCA is what the API server publishes of its client CA.
func publishedCA(pem []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": string(pem)},
	}
}

func TestClientCAFollowsTheCluster(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	client := fake.NewSimpleClientset()
	ca, err := nodeutil.NewClusterClientCA(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- ca.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	ask := guarded(t, nodeutil.WithClientCA(ca))
	if got := ask(first.client(t, "crew-member")); got != 401 {
		t.Errorf("without a ConfigMap: %d, want 401", got)
	}
	config := publishedCA(first.pem)
	if _, err := client.CoreV1().ConfigMaps("kube-system").Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first CA is accepted", func() bool { return ask(first.client(t, "crew-member")) == 200 })
	config.Data["client-ca-file"] = string(second.pem)
	if _, err := client.CoreV1().ConfigMaps("kube-system").Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second CA is accepted", func() bool { return ask(second.client(t, "crew-member")) == 200 })
	if got := ask(first.client(t, "crew-member")); got != 401 {
		t.Errorf("the CA before: %d, want 401", got)
	}
}

// What comes while the CA is read for the first time is not refused for it: a node is Ready a few
// milliseconds after its start, and the API server comes with a certificate.
func TestClientCAOfTheClusterIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := publishedCA(newAuthority(t).pem)
		client := fake.NewSimpleClientset(config)
		fakeapi.React(&client.Fake, "*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() == "get" {
				time.Sleep(time.Second)
			} else {
				time.Sleep(time.Minute) // the informer's lists
			}
			return false, nil, nil
		})
		ca, err := nodeutil.NewClusterClientCA(client)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- ca.Run(ctx) }()
		began := time.Now()
		if _, ok := ca.VerifyOptions(); !ok || ca.CurrentCABundleContent() == nil {
			t.Error("the CA is not known")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("that is known after %v", took)
		}
		time.Sleep(2 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Who comes with a certificate waits for the CA as long as it is not known whether it can be read,
// also where that begins long after the making, as it does once a claim is acquired or an election
// won; and no longer.
func TestWaitForTheClientCAOfTheCluster(t *testing.T) {
	internal := apierrors.NewInternalError(errors.New("no"))
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "extension-apiserver-authentication", errors.New("no"))
	const takes = 400 * time.Millisecond
	for name, test := range map[string]struct {
		answers []error       // of the first requests; then there is the ConfigMap
		begins  time.Duration // Run, after the making; less than none: never
		ends    time.Duration // after that; zero: later
		asked   time.Duration // after the beginning
		known   bool
		took    time.Duration
	}{
		"it is read":                       {took: takes, known: true},
		"it is read late":                  {begins: time.Minute, took: takes, known: true},
		"it is read before":                {begins: time.Minute, asked: time.Second, known: true},
		"a failure at first":               {answers: []error{internal}, took: 2*time.Second + 2*takes, known: true},
		"a failure just before":            {answers: []error{internal}, asked: time.Second, took: time.Second + 2*takes, known: true},
		"the API server is away":           {answers: slices.Repeat([]error{internal}, 100), took: 3 * time.Second},
		"it was away":                      {answers: slices.Repeat([]error{internal}, 5), asked: 11 * time.Second, took: time.Second + takes, known: true},
		"it may not be read":               {answers: []error{forbidden}, took: takes},
		"it was seen that it may not be":   {answers: []error{forbidden}, asked: time.Second},
		"the node ends":                    {answers: []error{internal}, ends: time.Second, took: time.Second},
		"the node has ended":               {answers: []error{internal}, ends: time.Second, asked: 2 * time.Second},
		"nobody reads it, at first":        {begins: -1, took: 3 * time.Second},
		"nobody reads it, a minute after":  {begins: -1, asked: time.Minute},
		"who comes before gets it as well": {begins: time.Second, asked: -time.Second / 2, took: time.Second/2 + takes, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset(publishedCA(newAuthority(t).pem))
				fakeapi.React(&client.Fake, "get", "configmaps", func(clienttesting.Action) (handled bool, _ runtime.Object, err error) {
					time.Sleep(takes)
					if len(test.answers) == 0 {
						return false, nil, nil
					}
					err, test.answers = test.answers[0], test.answers[1:]
					return true, nil, err
				})
				ca, err := nodeutil.NewClusterClientCA(client)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					if test.begins < 0 {
						ended <- nil
						return
					}
					time.Sleep(test.begins)
					if test.ends > 0 {
						time.AfterFunc(test.ends, cancel)
					}
					ended <- ca.Run(ctx)
				}()
				time.Sleep(max(test.begins, 0) + test.asked)
				synctest.Wait()
				began := time.Now()
				options, known := ca.VerifyOptions()
				if took := time.Since(began); took != test.took || known != test.known || known != (options.Roots != nil) {
					t.Errorf("known: %v, after %v; want %v, after %v", known, took, test.known, test.took)
				}
				time.Sleep(time.Second) // an informer that ends before it has synced logs it by a clock out of the bubble
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who has no certificate does not wait for the CA that certificates are checked by.
func TestNobodyElseWaitsForTheClientCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		ca, err := nodeutil.NewClusterClientCA(client)
		if err != nil {
			t.Fatal(err)
		}
		auth, err := nodeutil.WebhookAuth(client, "vk", nodeutil.WithClientCA(ca))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w := httptest.NewRecorder()
		nodeutil.WithAuth(auth, answering("hello")).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if took := time.Since(began); took != 0 || w.Code != http.StatusUnauthorized {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}

// A node that may not read the cluster's CA retries now and then, and logs so once.
func TestClientCAOfTheClusterThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := publishedCA(newAuthority(t).pem)
		client := fake.NewSimpleClientset(config)
		var allowed atomic.Bool
		fakeapi.React(&client.Fake, "get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), config.Name, errors.New("no"))
		})
		ca, err := nodeutil.NewClusterClientCA(client)
		if err != nil {
			t.Fatal(err)
		}
		logged := &warnings{Logger: log.L}
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), logged))
		ended := make(chan error)
		go func() { ended <- ca.Run(ctx) }()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := len(client.Actions()); n != 11 || logged.count("May not read") != 1 {
			t.Errorf("%d requests and %d warnings in ten minutes, want one a minute, and one", n, logged.count("May not read"))
		}
		if _, ok := ca.VerifyOptions(); ok || ca.CurrentCABundleContent() != nil {
			t.Error("certificates are accepted without a CA")
		}
		allowed.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, ok := ca.VerifyOptions(); !ok {
			t.Error("the CA is not known although it may be read now")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// While the API server does not answer, or not this process, nothing complains about the
// client CA: the node says so. It is known as soon as it does.
func TestClientCAWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := publishedCA(newAuthority(t).pem)
		client := fake.NewSimpleClientset(config)
		var answers atomic.Bool
		fakeapi.React(&client.Fake, "*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() != "get" {
				if !answers.Load() {
					t.Errorf("%s of ConfigMaps, which would complain without end", action.GetVerb())
				}
				return false, nil, nil
			}
			return !answers.Load(), nil, apierrors.NewUnauthorized("who are you?")
		})
		ca, err := nodeutil.NewClusterClientCA(client)
		if err != nil {
			t.Fatal(err)
		}
		logged := &warnings{Logger: log.L}
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), logged))
		ended := make(chan error)
		go func() { ended <- ca.Run(ctx) }()
		time.Sleep(time.Minute + time.Second/2)
		synctest.Wait()
		if n := len(client.Actions()); n > 31 || len(logged.lines) != 0 {
			t.Errorf("%d requests in a minute, and %q", n, logged.lines)
		}
		answers.Store(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, ok := ca.VerifyOptions(); !ok {
			t.Error("the CA is not known although it can be read now")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAnonymousAuthIsByName(t *testing.T) {
	if got := guarded(t)(insecure()); got != 401 {
		t.Errorf("by default: %d, want 401", got)
	}
	ca := newAuthority(t)
	path := write(t, "ca.crt", ca.pem)
	if got := guarded(t, nodeutil.WithClientCAFile(path))(insecure()); got != 401 {
		t.Errorf("with a client CA: %d, want 401", got)
	}
	anonymous := guarded(t, nodeutil.WithAnonymousAuth(), nodeutil.WithClientCAFile(path))
	for name, test := range map[string]struct {
		config *tls.Config
		want   int
	}{
		"nothing":                               {insecure(), 200},
		"a certificate":                         {ca.client(t, "crew-member"), 200},
		"the certificate of one without rights": {ca.client(t, "other"), 403},
		"a stranger's certificate":              {newAuthority(t).client(t, "crew-member"), 401},
	} {
		if got := anonymous(test.config); got != test.want {
			t.Errorf("where anonymous callers are let in, %s: %d, want %d", name, got, test.want)
		}
	}
}
