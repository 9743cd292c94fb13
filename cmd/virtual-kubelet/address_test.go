package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// warned counts warnings.
type warned struct {
	log.Logger
	count *int
}

func (w warned) WithError(error) log.Logger { return w }
func (w warned) Warn(...any)                { *w.count++ }

// Before name resolution and the network are up the node gets no address that is a guess:
// the start waits, and says so once.
func TestAddressWaitsForTheNetwork(t *testing.T) {
	server := &rest.Config{Host: "https://127.0.0.1:6443"}
	down := errors.New("the network is down")
	synctest.Test(t, func(t *testing.T) {
		began, warnings := time.Now(), 0
		server.Proxy = func(*http.Request) (*url.URL, error) {
			if time.Since(began) < time.Minute {
				return nil, down
			}
			return nil, nil
		}
		ctx := log.WithLogger(t.Context(), warned{count: &warnings})
		address, err := nodeAddress(ctx, &options{}, server)
		if own, _ := nodeaddress.Own(); err != nil || !net.ParseIP(address).Equal(own) {
			t.Errorf("got %s, %v, want %v", address, err, own)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it took %v, want a minute and little more", took)
		}
		if warnings != 1 {
			t.Errorf("%d warnings, want one", warnings)
		}

		server.Proxy = func(*http.Request) (*url.URL, error) { return nil, down }
		o := &options{nodeName: "vk", startupTimeout: time.Minute}
		starting, started := o.starting(ctx, time.Now())
		defer started()
		address, err = nodeAddress(starting, o, server)
		if !errors.Is(err, down) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "VKUBELET_POD_IP") {
			t.Errorf("got %q, %v, want that it took too long, and why", address, err)
		}
	})
}
