package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// What can be asked of a running control plane.
const (
	actionStart   = "start"
	actionStop    = "stop"
	actionRestart = "restart"
)

// serveControl answers "controlplane start|stop|restart" on a Unix socket in
// the data directory, which only its owner can enter, until ctx is cancelled.
func serveControl(ctx context.Context, s *supervisor) error {
	if err := os.Remove(controlSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old control socket: %w", err)
	}
	listener, err := net.Listen("unix", controlSocket)
	if err != nil {
		return fmt.Errorf("listen on the control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{component}/{action}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.control(r.Context(), r.PathValue("action"), r.PathValue("component")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	return nil
}

// callControl asks the supervisor of a directory to do something and waits
// until it is done. It changes the working directory; see controlSocket.
func callControl(ctx context.Context, l layout, action, component string) error {
	if err := os.Chdir(l.dir); err != nil {
		return fmt.Errorf("enter the data directory (check --dir): %w", err)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", controlSocket)
		},
	}}
	url := "http://controlplane/" + component + "/" + action
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no control plane answers in %s: start it with \"controlplane up --dir %s\": %w", l.dir, l.dir, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return fmt.Errorf("%s %s: %s", action, component, strings.TrimSpace(string(body)))
	}
	return nil
}
