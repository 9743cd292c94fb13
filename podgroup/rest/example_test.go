package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"golang.org/x/oauth2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
)

// A service answers a deletion; a proxy before it answers another one.
func Example() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		if r.URL.Path == "/v1/units/a" {
			fmt.Fprint(w, `{"message": "there is no unit a"}`)
		} else {
			fmt.Fprint(w, "<html>")
		}
	}))
	defer service.Close()

	client := &rest.Client{
		Service: "Capsules", URL: service.URL + "/v1",
		Token: func(context.Context) (*oauth2.Token, error) { // or that of clientcredentials.Config
			return &oauth2.Token{AccessToken: "secret"}, nil
		},
	}
	defer client.Close()
	for _, path := range []string{"/units/a", "/other"} {
		err := client.Do(context.Background(), rest.Call{Action: podgroup.ActionDelete, Method: http.MethodDelete, Path: path}, nil)
		fmt.Println(err, errdefs.IsNotFound(err), errdefs.IsUnavailable(err))
	}
	// Output:
	// Capsules refuses to delete: 404 Not Found: {"message": "there is no unit a"} true false
	// Capsules refuses to delete: 404 Not Found: <html> false true
}
