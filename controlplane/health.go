package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const pollInterval = 50 * time.Millisecond

// poll calls the check until it returns nil. When time is up, the error is
// that of the last attempt.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		if err := check(ctx); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last attempt: %w)", what, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// socketReady waits until the path of the HTTP server on the Unix socket
// answers 200. The socket is relative to our working directory.
func socketReady(socket, path string) func(context.Context) error {
	return answers("http://"+socket+path, &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	})
}

// endpointReady waits until the HTTPS URL answers 200.
func endpointReady(ca *keyPair, url string) func(context.Context) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return answers(url, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}})
}

func answers(url string, transport *http.Transport) func(context.Context) error {
	transport.DisableKeepAlives = true
	client := &http.Client{Timeout: 5 * time.Second, Transport: transport}
	return func(ctx context.Context) error {
		return poll(ctx, url, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
				return fmt.Errorf("%s: %s", resp.Status, body)
			}
			return nil
		})
	}
}

// defaultServiceAccountReady waits until pods can be created in the namespace
// default, which needs the controller manager.
func defaultServiceAccountReady(ctx context.Context, client kubernetes.Interface) error {
	return poll(ctx, "the service account default/default", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// alreadyExists forgives objects of an earlier start.
func alreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
