package mock

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// PortForward answers an HTTP request with a page that names the pod and the
// port, and echoes anything else, on any port. It ends with the pod too.
func (p *Provider) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	if port < 1 || port > 65535 {
		return errdefs.InvalidInputf("%d is no port", port)
	}
	s, err := p.session(namespace, pod, p.firstContainer(namespace, pod))
	if err != nil {
		return err
	}
	defer stream.Close()
	return s.run(ctx, func(context.Context) error {
		first := make([]byte, 4096)
		n, err := stream.Read(first)
		if n > 0 && looksLikeHTTP(first[:n]) {
			return answerHTTP(io.MultiReader(bytes.NewReader(first[:n]), stream), stream, namespace, pod, port)
		}
		if n > 0 {
			if _, err := stream.Write(first[:n]); err != nil {
				return err
			}
		}
		if err == nil {
			_, err = io.Copy(stream, stream)
		}
		if err == io.EOF {
			return nil
		}
		return err
	})
}

func (p *Provider) firstContainer(namespace, pod string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if h, err := p.get(namespace, pod); err == nil {
		for _, c := range h.pod.of(kindMain) {
			return c.name
		}
	}
	return ""
}

// looksLikeHTTP reports whether b begins with a method and a path.
func looksLikeHTTP(b []byte) bool {
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
		http.MethodPatch, http.MethodDelete, http.MethodOptions,
	} {
		if bytes.HasPrefix(b, []byte(method+" /")) || bytes.HasPrefix(b, []byte(method+" *")) {
			return true
		}
	}
	return false
}

// answerHTTP answers one request. The connection ends with it.
func answerHTTP(in io.Reader, out io.Writer, namespace, pod string, port int32) error {
	request, err := http.ReadRequest(bufio.NewReader(in))
	if err != nil {
		_, err = io.WriteString(out, "HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return err
	}
	page := fmt.Sprintf("mock pod %s/%s, port %d: %s %s\n", namespace, pod, port, request.Method, request.URL.Path)
	_, err = fmt.Fprintf(out, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(page))
	if err == nil && request.Method != http.MethodHead {
		_, err = io.WriteString(out, page)
	}
	return err
}
