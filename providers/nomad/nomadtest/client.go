package nomadtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Shell runs a command of exec, and returns its exit code. Sizes is closed at the end of
// the session.
type Shell func(command []string, tty bool, stdin io.Reader, stdout, stderr io.Writer, sizes <-chan api.TerminalSize) int

// sendLog sends a log of a task.
func (s *Server) sendLog(w http.ResponseWriter, r *http.Request) (any, error) {
	alloc, q := r.PathValue("id"), r.URL.Query()
	offset, err := strconv.Atoi(q.Get("offset"))
	if err != nil || offset < 0 || !slices.Contains([]string{api.OriginStart, api.OriginEnd}, q.Get("origin")) || q.Get("type") != "stdout" && q.Get("type") != "stderr" {
		return nil, bad("offset, origin or type: %s", r.URL.RawQuery)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	j := s.byAlloc(alloc)
	if j == nil {
		return nil, unknownAlloc(alloc)
	}
	if c := j.unit.Container(q.Get("task")); c == nil || c.Now.State == podgroup.Waiting && c.Last.State == podgroup.Waiting {
		return nil, notFound("task \"" + q.Get("task") + "\" not started yet, or unknown: log")
	}
	var text strings.Builder
	for _, previous := range []bool{true, false} {
		lines, err := s.World.Log(j.unit.ID, q.Get("task"), previous)
		if err != nil {
			return nil, notFound("log")
		}
		for _, line := range lines {
			text.WriteString(line.Text + "\n")
		}
	}
	if q.Get("type") == "stderr" {
		return nil, nil
	}
	files := logFiles(text.String(), cmp.Or(s.LogFileSize, math.MaxInt))
	if q.Get("origin") == api.OriginEnd {
		kept := strings.Join(files[max(0, len(files)-logFilesKept):], "")
		offset = max(0, len(kept)-offset)
	}
	sent, err := frames("alloc/logs/"+q.Get("task")+"."+q.Get("type")+".", files, offset)
	s.logBytes += len(sent)
	if len(sent) > 0 && s.LogBreaks > 0 {
		s.LogBreaks--
		_, _ = w.Write(sent[:len(sent)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return sent, err
}

// LogBytes returns the size of all answers with logs.
func (s *Server) LogBytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logBytes
}

// logFilesKept is how many files there are of a log at most.
const logFilesKept = 5

// logFiles returns the files of a log: no line is in two of them.
func logFiles(text string, size int) (files []string) {
	for line := range strings.Lines(text) {
		if n := len(files); n == 0 || len(files[n-1])+len(line) > size {
			files = append(files, "")
		}
		files[len(files)-1] += line
	}
	return files
}

// frames returns what Nomad sends of the files that it keeps, from an offset on. It does not
// say that the offset counts from another file than before.
func frames(prefix string, files []string, offset int) ([]byte, error) {
	var sent bytes.Buffer
	encoder := json.NewEncoder(&sent)
	for i := max(0, len(files)-logFilesKept); i < len(files); i++ {
		begin := min(offset, len(files[i]))
		if offset -= begin; begin == len(files[i]) {
			continue
		}
		frame := api.StreamFrame{File: prefix + strconv.Itoa(i), Offset: int64(len(files[i])), Data: []byte(files[i][begin:])}
		if err := encoder.Encode(frame); err != nil {
			return nil, err
		}
	}
	return sent.Bytes(), nil
}

// exec runs a command by the Shell.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) (any, error) {
	alloc, q := r.PathValue("id"), r.URL.Query()
	var command []string
	tty, err := strconv.ParseBool(q.Get("tty"))
	if err == nil {
		err = json.Unmarshal([]byte(q.Get("command")), &command)
	}
	if err != nil || len(command) == 0 {
		return nil, bad("tty or command: %s", r.URL.RawQuery)
	}
	s.mu.Lock()
	s.look()
	j := s.byAlloc(alloc)
	var c *podgroup.Container
	if j != nil {
		c = j.unit.Container(q.Get("task"))
	}
	runs := c != nil && c.Now.State == podgroup.Executing
	s.mu.Unlock()
	if j == nil {
		return nil, unknownAlloc(alloc)
	}
	if !runs {
		return nil, &grouptest.Refusal{Status: http.StatusNotFound, Message: "task \"" + q.Get("task") + "\" is not running"}
	}
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return nil, nil // it has answered
	}
	defer conn.Close()
	out := &execOutput{conn: conn}
	input, typed := io.Pipe()
	sizes, begins := make(chan api.TerminalSize, 10), time.Now().Add(500*time.Millisecond)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		defer close(sizes)
		defer typed.Close()
		for {
			var frame api.ExecStreamingInput
			if conn.ReadJSON(&frame) != nil {
				return
			}
			switch {
			case frame.TTYSize != nil:
				if !time.Now().Before(begins) { // Docker loses the sizes before
					sizes <- *frame.TTYSize
				}
			case frame.Stdin != nil && frame.Stdin.Close:
				out.isShut.Store(tty) // as Docker does it
				_ = typed.Close()
			case frame.Stdin != nil:
				if _, err := typed.Write(frame.Stdin.Data); err != nil {
					continue // the command does not read
				}
			}
		}
	})
	shell := s.Shell
	if shell == nil {
		shell = func(_ []string, _ bool, stdin io.Reader, stdout, _ io.Writer, _ <-chan api.TerminalSize) int {
			_, _ = io.Copy(stdout, stdin)
			return 0
		}
	}
	code := shell(command, tty, input, execWriter{out, false}, execWriter{out, true}, sizes)
	_ = input.Close()
	_ = out.send(&api.ExecStreamingOutput{Exited: true, Result: &api.ExecStreamingExitResult{ExitCode: code}})
	_ = conn.Close()
	receiving.Wait()
	return nil, nil
}

// execOutput sends frames.
type execOutput struct {
	conn   *websocket.Conn
	mu     sync.Mutex
	isShut atomic.Bool
}

func (o *execOutput) send(frame *api.ExecStreamingOutput) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn.WriteJSON(frame)
}

// execWriter is stdout or stderr of a command.
type execWriter struct {
	*execOutput
	isStderr bool
}

// Write implements io.Writer.
func (w execWriter) Write(p []byte) (int, error) {
	if w.isShut.Load() {
		return len(p), nil
	}
	data := &api.ExecStreamingIOOperation{Data: p}
	frame := &api.ExecStreamingOutput{Stdout: data}
	if w.isStderr {
		frame = &api.ExecStreamingOutput{Stderr: data}
	}
	return len(p), w.send(frame)
}

func (s *Server) listNodes(w http.ResponseWriter, r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*api.NodeListStub
	for _, n := range s.Nodes {
		shown := *n
		if r.URL.Query().Get("resources") != "true" {
			shown.NodeResources, shown.ReservedResources = nil, nil
		}
		all = append(all, &shown)
	}
	return page(w, r, s.index, all, func(n *api.NodeListStub) string { return n.ID })
}
