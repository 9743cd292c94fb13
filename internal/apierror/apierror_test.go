package apierror_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
)

func TestClasses(t *testing.T) {
	proxy := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", corev1.Resource("pods"), "one", "no backend", 0, true)
	}
	for what, c := range map[string]struct {
		err                error
		notFound, rejected bool
	}{
		"nothing":                {nil, false, false},
		"another error":          {errors.New("refused"), false, false},
		"not found":              {apierrors.NewNotFound(corev1.Resource("pods"), "one"), true, false},
		"not found, wrapped":     {fmt.Errorf("read: %w", apierrors.NewNotFound(corev1.Resource("pods"), "one")), true, false},
		"of class NotFound":      {errdefs.NotFound("no such pod"), true, false},
		"not found, and refused": {errors.Join(errdefs.NotFound("no such pod"), errors.New("refused")), false, false},
		"a proxy's 404":          {proxy(http.StatusNotFound), false, false},
		"a proxy's 404, wrapped": {fmt.Errorf("read: %w", proxy(http.StatusNotFound)), false, false},
		"bad request":            {apierrors.NewBadRequest("no JSON"), false, true},
		"invalid":                {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "one", nil), false, true},
		"a proxy's 400":          {proxy(http.StatusBadRequest), false, false},
		"a proxy's 422":          {proxy(http.StatusUnprocessableEntity), false, false},
		"a conflict":             {apierrors.NewConflict(corev1.Resource("pods"), "one", errors.New("changed")), false, false},
	} {
		if got := apierror.IsNotFound(c.err); got != c.notFound {
			t.Errorf("%s: IsNotFound is %v", what, got)
		}
		if got := apierror.IsRejected(c.err); got != c.rejected {
			t.Errorf("%s: IsRejected is %v", what, got)
		}
		if got := apierror.OrUnavailable(c.err); strings.Contains(what, "proxy") {
			if !errdefs.IsUnavailable(got) || errdefs.IsNotFound(got) || apierrors.IsBadRequest(got) || got.Error() != c.err.Error() {
				t.Errorf("%s: OrUnavailable is %v, of class %v", what, got, errdefs.ClassOf(got))
			}
		} else if got != c.err {
			t.Errorf("%s: OrUnavailable is %v", what, got)
		}
	}
}

// What client-go makes of a proxy's page, and of an API server's Status.
func TestAnswersOverHTTP(t *testing.T) {
	for body, want := range map[string]bool{
		`<html>404 Not Found</html>`: false,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{}}`: true,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if want {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Pods("shop").Get(t.Context(), "one", metav1.GetOptions{})
		if got := apierror.IsNotFound(err); got != want || !apierrors.IsNotFound(err) {
			t.Errorf("%s: IsNotFound is %v of %v", body, got, err)
		}
		server.Close()
	}
}
