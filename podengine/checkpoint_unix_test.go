//go:build unix

package podengine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// What a worker acts upon is on disk: a process that is killed must not leave a
// container that was stopped for a deletion to be started again by the next one.
func TestChangesAreWrittenBeforeTheyAreActedOn(t *testing.T) {
	large := func(pod *corev1.Pod) { // no pipe holds all of it
		pod.Annotations = map[string]string{"a": strings.Repeat("a", 1<<20)}
	}
	pod, newer := makePod("a", large), makePod("a", large)
	e := &Engine{cfg: Config{Root: t.TempDir(), Objects: &fakeObjects{}}}
	w := newWorker(e, pod, time.Now()) // which nobody runs
	written := e.checkpointFile(pod.UID) + unready
	if err := errors.Join(os.MkdirAll(filepath.Dir(written), 0o750), unix.Mkfifo(written, 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(){
		"an update":  func() { _ = w.update(newer) },
		"a deletion": func() { _ = w.delete(time.Now()) },
	} {
		var changing sync.WaitGroup
		podBefore, stopBefore := w.current()
		changing.Go(change)
		pipe, err := os.Open(written) // once it is being written
		if err != nil {
			t.Fatal(err)
		}
		if pod, stop := w.current(); pod != podBefore || stop != stopBefore {
			t.Errorf("%s is acted on before it is on disk", what)
		}
		_, err = io.Copy(io.Discard, pipe)
		if err := errors.Join(err, pipe.Close()); err != nil {
			t.Fatal(err)
		}
		changing.Wait()
		if pod, stop := w.current(); pod == podBefore && stop == stopBefore {
			t.Errorf("%s is never acted on", what)
		}
	}
}
