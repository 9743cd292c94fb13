package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Hook runs a postStart or preStop handler. It ends when the handler does, or
// ctx: hooks have no timeout of their own, preStop is given what is left of the
// grace period.
//
// A command has to succeed, a request has to be answered, with any status, or a
// redirect to another host, which is not followed.
// An https request that is answered in plain http is made again in plain http,
// as long-lived manifests rely on it. tcpSocket always fails.
func (p *Prober) Hook(ctx context.Context, target Target, handler *corev1.LifecycleHandler) error {
	switch {
	case handler.Exec != nil:
		return p.hookExec(ctx, target, handler.Exec.Command)
	case handler.HTTPGet != nil:
		return p.hookHTTP(ctx, target, handler.HTTPGet)
	case handler.Sleep != nil:
		return sleep(ctx, time.Duration(handler.Sleep.Seconds)*time.Second)
	case handler.TCPSocket != nil:
		return errors.New("invalid handler: tcpSocket is not supported in lifecycle hooks: use exec, httpGet or sleep")
	}
	return errors.New("invalid handler: it names no action: give it exec, httpGet or sleep")
}

// The errors of hooks are in the kubelet's words.

func (p *Prober) hookExec(ctx context.Context, target Target, command []string) error {
	output, err := p.run(ctx, target.ContainerID, command, 0)
	if err != nil {
		return fmt.Errorf("Exec lifecycle hook (%s) for Container %q in Pod %q failed - error: %w, message: %q",
			command, target.Container.Name, describePod(target.Pod), err, limited(output))
	}
	return nil
}

func (p *Prober) hookHTTP(ctx context.Context, target Target, action *corev1.HTTPGetAction) error {
	err := p.get(ctx, target, action)
	if err != nil && strings.EqualFold(string(action.Scheme), string(corev1.URISchemeHTTPS)) && answeredHTTP(err) {
		log.G(ctx).Warnf("the https lifecycle hook of container %q is answered in plain http: trying that", target.Container.Name)
		err = p.get(ctx, target, plain(action))
	}
	if err != nil {
		return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %w",
			action.Path, target.Container.Name, describePod(target.Pod), err)
	}
	return nil
}

func (p *Prober) get(ctx context.Context, target Target, action *corev1.HTTPGetAction) error {
	request, err := newRequest(ctx, target, action, "kube-lifecycle/"+p.version)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: p.http, CheckRedirect: staysOnHost}).Do(request)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxOutput) // lets the server finish
	return response.Body.Close()
}

// answeredHTTP reports whether a server answered https in plain http.
func answeredHTTP(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) }

// plain is the request without encryption, and hence without credentials.
func plain(action *corev1.HTTPGetAction) *corev1.HTTPGetAction {
	action = action.DeepCopy()
	action.Scheme = corev1.URISchemeHTTP
	headers := action.HTTPHeaders
	action.HTTPHeaders = nil
	for _, h := range headers {
		if !strings.EqualFold(h.Name, "Authorization") {
			action.HTTPHeaders = append(action.HTTPHeaders, h)
		}
	}
	return action
}

func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the hook was to sleep for %v: %w", duration, ctx.Err())
	}
}

func describePod(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
