package plugin

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// The log of a container that says nothing for a long time can be followed by a client that waits for
// the header of an answer no longer than two minutes, as nodes do.
func TestTheLogOfASilentContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		reading, writing := io.Pipe()
		p.log = reading
		s := start(t, p, nil)
		ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
		transport := grouptest.Serve(t, s).Transport(t)
		transport.ResponseHeaderTimeout = 2 * time.Minute
		body, err := json.Marshal(wire.Log{Namespace: "default", PodUID: "uid-1", ContainerName: "main", Opts: wire.LogOptions{Follow: true}})
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://plugin/getLogs", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Minute, func() {
			_, _ = io.WriteString(writing, "at last\n")
			_ = writing.Close()
		})
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); string(text) != "at last\n" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A provider may return nil for a log that is empty, as for the kubelet API.
func TestALogThatIsNil(t *testing.T) {
	p := newPods()
	p.noLog = true
	s := start(t, p, nil)
	ask(s, http.MethodPost, "/create", wire.PluginCreate{Pod: newPod("uid-1")})
	if code, text := ask(s, http.MethodGet, "/getLogs", wire.Log{Namespace: "default", PodUID: "uid-1", ContainerName: "main"}); code != http.StatusOK || text != "" {
		t.Errorf("%d %q", code, text)
	}
}
