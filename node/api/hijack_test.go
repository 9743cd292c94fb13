package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func watchedPipe(t *testing.T) (client net.Conn, server *watchedConn, gone context.Context) {
	gone, cancel := context.WithCancel(t.Context())
	client, raw := net.Pipe()
	server = newWatchedConn(raw, bufio.NewReader(raw), time.Hour, cancel)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server, gone
}

func TestWatchedConnNoticesThatTheClientHasGone(t *testing.T) {
	for name, before := range map[string]func(client, server net.Conn){
		"nothing was sent": func(net.Conn, net.Conn) {},
		"input is unread": func(client, _ net.Conn) {
			go client.Write(make([]byte, readAheadLimit/2))
		},
		"somebody reads": func(_, server net.Conn) {
			go server.Read(make([]byte, 1))
		},
		"somebody has stopped to read": func(client, server net.Conn) {
			go client.Write([]byte("ab"))
			server.Read(make([]byte, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server, gone := watchedPipe(t)
				before(client, server)
				time.Sleep(time.Second) // of the bubble's time
				synctest.Wait()
				if gone.Err() != nil {
					t.Fatal("gone too early")
				}
				client.Close()
				synctest.Wait()
				if gone.Err() == nil {
					t.Error("not noticed")
				}
			})
		})
	}
}

// TestWatchedConnLosesNothing: what was read ahead comes first, in order,
// and the error last.
func TestWatchedConnLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := watchedPipe(t)
		var sent []byte
		for i := range 3 * readAheadLimit {
			sent = append(sent, byte(i>>8), byte(i))
		}
		go func() {
			for chunk := range chunks(sent, 7000) {
				client.Write(chunk)
				time.Sleep(13 * time.Millisecond)
			}
			client.Close()
		}()
		var got []byte
		buf := make([]byte, 5000)
		for i := 0; ; i++ {
			n, err := server.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			if i%20 == 0 {
				time.Sleep(3 * readAheadDelay) // longer than the connection waits for a reader
			}
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("got %d bytes of %d", len(got), len(sent))
		}
	})
}

func chunks(p []byte, size int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(p) > 0 {
			n := min(size, len(p))
			if !yield(p[:n]) {
				return
			}
			p = p[n:]
		}
	}
}

func TestWatchedConnReadsAheadToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := watchedPipe(t)
		written := make(chan int, 1)
		go func() {
			client.SetWriteDeadline(time.Now().Add(time.Minute))
			n, _ := client.Write(make([]byte, 4*readAheadLimit))
			written <- n
		}()
		if n := <-written; n < readAheadLimit || n > 2*readAheadLimit {
			t.Errorf("%d bytes were taken that nobody reads", n)
		}
		_ = server
	})
}

// TestWatchedConnIdleTimeout: bytes in either direction keep a connection, and
// the libraries' own deadlines do not count.
func TestWatchedConnIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, gone := watchedPipe(t)
		go io.Copy(io.Discard, client)
		go io.Copy(io.Discard, server)
		server.SetDeadline(time.Now().Add(time.Minute))
		for range 3 {
			time.Sleep(59 * time.Minute)
			client.Write([]byte("in"))
			time.Sleep(59 * time.Minute)
			server.Write([]byte("out"))
		}
		last := time.Now()
		<-gone.Done()
		if idle := time.Since(last); idle != time.Hour {
			t.Errorf("ended after %s", idle)
		}
	})
}

// TestWatchedConnIdleTimeoutWithoutReader: a client that has stopped to read is
// idle, although somebody writes.
func TestWatchedConnIdleTimeoutWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server, gone := watchedPipe(t)
		start := time.Now()
		if _, err := server.Write([]byte("unread")); err == nil || time.Since(start) != time.Hour {
			t.Errorf("write ended with %v after %s", err, time.Since(start))
		}
		if gone.Err() == nil {
			t.Error("the context goes on")
		}
	})
}

func TestForwardSizesKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := make(chan TermSize), make(chan TermSize)
		go forwardSizes(ctx, in, out)
		for i := range uint16(5) {
			in <- TermSize{Width: i, Height: i}
		}
		close(in)
		if got := <-out; got != (TermSize{4, 4}) {
			t.Errorf("got %+v", got)
		}
		synctest.Wait()
		select {
		case got, ok := <-out:
			t.Errorf("got %+v, %t", got, ok)
		default:
		}
		cancel()
		if _, ok := <-out; ok {
			t.Error("not closed")
		}
	})
}

// deafConn is a connection that shows only by Write that it has gone.
type deafConn struct {
	net.Conn
	closed chan struct{}
}

func (c deafConn) Read([]byte) (int, error)  { <-c.closed; return 0, net.ErrClosed }
func (c deafConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
func (c deafConn) Close() error              { close(c.closed); return nil }

func TestWatchedConnNoticesByWriting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	raw := deafConn{closed: make(chan struct{})}
	conn := newWatchedConn(raw, bufio.NewReader(raw), time.Hour, cancel)
	if _, err := conn.Write([]byte("x")); err == nil || ctx.Err() == nil {
		t.Errorf("%v, and the context: %v", err, ctx.Err())
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}
