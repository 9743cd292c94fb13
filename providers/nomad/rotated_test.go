//go:build integration

package nomad

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// withSmallLogs returns the address of a proxy of Nomad that has jobs' logs in the smallest
// files there are.
func withSmallLogs(t *testing.T, address string) string {
	t.Helper()
	to, err := url.Parse(address)
	must(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		if r.In.Method != http.MethodPut || r.In.URL.Path != "/v1/jobs" {
			return
		}
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			t.Error(err)
		}
		small := bytes.ReplaceAll(body, []byte(`"MaxFileSizeMB":10`), []byte(`"MaxFileSizeMB":1`))
		if bytes.Equal(small, body) {
			t.Errorf("this job has no logs of 10 MB: %s", body)
		}
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(small)), int64(len(small))
	}})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL
}

// logFiles are the files that Nomad has made of a log so far, with what was in them when they
// were there last.
type logFiles struct {
	t       *testing.T
	pattern string
	texts   map[string]string
}

// logFilesOf returns the files of a container's stdout.
func (s *site) logFilesOf(container string) *logFiles {
	alloc := strings.TrimPrefix(container, "main-")
	return &logFiles{s.T, filepath.Join(s.nomad.dir, "data", "alloc", alloc, "alloc", "logs", "main.stdout.*"), map[string]string{}}
}

// read returns all that was in the files, and what is in those that are there.
func (l *logFiles) read() (all, now string) {
	l.t.Helper()
	paths, err := filepath.Glob(l.pattern)
	must(l.t, err)
	byNumber := func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }
	slices.SortFunc(paths, byNumber)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // since now
		}
		must(l.t, err)
		l.texts[path] = string(text)
		now += string(text)
	}
	for _, path := range slices.SortedFunc(maps.Keys(l.texts), byNumber) {
		all += l.texts[path]
	}
	return all, now
}

// follow copies a log that is followed until its end, from a moment on.
func (s *site) follow(pod *corev1.Pod, to io.Writer, from <-chan struct{}) (wait func() error) {
	s.Helper()
	log, err := s.p.GetContainerLogs(context.WithoutCancel(s.Context()), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Follow: true})
	must(s.T, err)
	ended := make(chan error, 1)
	go func() {
		<-from
		_, err := io.Copy(to, log)
		ended <- errors.Join(err, log.Close())
	}()
	return func() error { return <-ended }
}

const (
	lineSize   = 100  // bytes of a line
	chunkLines = 8000 // lines that are written at once, less than a file
)

// Nomad writes the log of this container to seven files or more, and keeps five of them. Some
// lines may be in them twice: its driver for Docker reads those of the last second again when
// Docker has ended its answer.
func rotatedLog(s *site) {
	const chunks = 9
	cfg := s.cfg
	cfg.Address = withSmallLogs(s.T, cfg.Address)
	b := s.nomad.on(s.T, cfg)
	// Each part is written when it was asked for: nobody falls behind who does not want to.
	pod := b.pod("rotated", fmt.Sprintf(`i=0
until [ -e /tmp/released ]; do
	if [ -e /tmp/$i ]; then
		awk -v i=$i 'BEGIN { for (k = 0; k < %[1]d; k++) printf "line %%0%[2]dd\n", i * %[1]d + k }'
		i=$((i+1))
	fi
	sleep 0.1
done`, chunkLines, lineSize-6))
	b.create(pod)
	b.awaitPhase(pod, corev1.PodRunning)
	container := b.container(pod)
	files := b.logFilesOf(container)
	var keepsUp, slow lockedbuffer.Buffer
	atOnce, later := make(chan struct{}), make(chan struct{})
	close(atOnce)
	waits := []func() error{b.follow(pod, &keepsUp, atOnce), b.follow(pod, &slow, later)}
	var all string
	for i := range chunks {
		if out, err := b.nomad.command(b.T, "exec", container, "touch", fmt.Sprint("/tmp/", i)).CombinedOutput(); err != nil {
			b.Fatalf("docker exec: %v: %s", err, out)
		}
		last := fmt.Sprintf("%0*d\n", lineSize-6, (i+1)*chunkLines-1)
		until(b.T, fmt.Sprintf("part %d was followed", i), func() bool {
			all, _ = files.read()
			return strings.Contains(all, last) && len(keepsUp.String()) >= len(all)
		})
	}
	close(later)
	until(b.T, "the slow one has the end, too", func() bool { return strings.HasSuffix(slow.String(), all[len(all)-lineSize:]) })
	b.logOfTheLastFiles(pod, files)
	b.release(container)
	for _, wait := range waits {
		must(b.T, wait())
	}
	all, _ = files.read()
	if got := keepsUp.String(); got != all {
		same := commonLines(got, all)
		b.Errorf("what was followed are %d bytes, and %d in the files of Nomad; the same are %d, then follow %.200q and %.200q", len(got), len(all), same, got[same:], all[same:])
	}
	got := slow.String()
	if same := commonLines(got, all); !strings.HasSuffix(all, got[same:]) || same < lineSize || len(got) == len(all) {
		b.Errorf("what was followed slowly are %d bytes, of %d; the same are %d, then follows %.200q", len(got), len(all), same, got[same:])
	}
}

// commonLines returns the size of the lines with which both texts begin.
func commonLines(a, b string) (size int) {
	for line := range strings.Lines(a) {
		if !strings.HasPrefix(b[size:], line) {
			break
		}
		size += len(line)
	}
	return size
}

// logOfTheLastFiles checks the log of a container of which Nomad has removed the first files.
func (s *site) logOfTheLastFiles(pod *corev1.Pod, files *logFiles) {
	s.Helper()
	const many = 30000 // lines, of several files
	all, text := files.read()
	if len(text) < many*lineSize || len(text) >= len(all) {
		s.Errorf("Nomad has %d of %d bytes: the test does not show what it should", len(text), len(all))
	}
	for opts, want := range map[vkapi.ContainerLogOpts]string{
		{}:                                text,
		{Tail: 3}:                         text[len(text)-3*lineSize:],
		{Tail: many}:                      text[len(text)-many*lineSize:],
		{Tail: len(text)}:                 text,
		{LimitBytes: 3*lineSize + 1}:      text[:3*lineSize+1],
		{Tail: many, LimitBytes: 2 << 20}: text[len(text)-many*lineSize:][:2<<20],
	} {
		if got := s.log(pod, opts); got != want {
			s.Errorf("with %+v the log has %d bytes, from %.*q on, want %d, from %.*q on", opts, len(got), lineSize, got, len(want), lineSize, want)
		}
	}
}
