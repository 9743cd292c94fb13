package relay

import (
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// argument is what the relay's process is called.
const argument = "vk-cri-relay"

// linger is how long the relay waits for the answers to calls whose caller is gone.
// The runtime has their deadlines itself; this is for those that have none, and
// for those of which only a part was sent.
const linger = 2 * time.Minute

// MaybeRelay is the relay's process if this one was started to be it, and then does
// not return. It is to be called first of all in main.
func MaybeRelay() {
	if len(os.Args) == 2 && os.Args[0] == argument {
		os.Exit(run(os.Args[1]))
	}
}

// run relays what comes to the listener that it got, until the program is gone
// that started it, and no call is under way.
func run(runtime string) int {
	// They are meant for the program. Ending that ends this.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return 1
	}
	go func() { // ends with the program
		_, _ = io.Copy(io.Discard, os.Stdin) // which ends with the program
		_ = listener.Close()
	}()
	var serving sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		serving.Go(func() { relay(conn, runtime) })
	}
	serving.Wait()
	return 0
}

// relay passes on what a connection and the runtime say to each other.
func relay(caller net.Conn, runtime string) {
	defer func() { _ = caller.Close() }()
	callee, err := net.Dial("unix", runtime)
	if err != nil {
		return // the caller sees that there is no connection
	}
	c := newCalls()
	var asking sync.WaitGroup
	asking.Go(func() {
		requests := newFrames(prefaceSize, c.addRequest)
		_ = pass(callee, caller, requests)
		if !requests.whole() {
			c.finish(requests.stream)
			return // nothing can be sent after half a frame
		}
		if open := c.finish(0); len(open) > 0 {
			for _, stream := range append(open, 0) {
				_, _ = callee.Write(window(stream))
			}
		}
	})
	answering := make(chan struct{})
	go func() { // waited for below
		defer close(answering)
		answers := newFrames(0, c.addResponse)
		if pass(caller, callee, answers) != nil {
			_ = pass(io.Discard, callee, answers) // the caller is gone
		}
	}()
	select {
	case <-answering: // the runtime is gone
	case <-c.over:
	case <-lingering(&asking):
	}
	_, _ = callee.Close(), caller.Close()
	asking.Wait()
	<-answering
}

// lingering is closed some time after nobody calls any more.
func lingering(asking *sync.WaitGroup) <-chan struct{} {
	enough := make(chan struct{})
	go func() { // ends with the last call
		asking.Wait()
		time.AfterFunc(linger, func() { close(enough) })
	}()
	return enough
}

// pass copies until one side is gone. It returns an error if that is the one that
// is written to.
func pass(to io.Writer, from io.Reader, frames *frames) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		frames.accept(buffer[:n])
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
	}
}
