package api

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
)

// synFrame is the beginning of a stream, with no more than the library needs.
func synFrame(id byte) []byte {
	return controlFrame(spdySynStream, []byte{0, 0, 0, id, 0, 0, 0, 0, 0, 0})
}

// A connection holds no more data than maxInFlight, for any streams;
// what is read makes room, and so does the end of a stream.
func TestDataInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in bytes.Buffer
		for id := range byte(5) {
			in.Write(synFrame(2*id + 1))
		}
		for range 30 {
			for id := range byte(5) {
				in.Write(dataFrame(2*id+1, 0, make([]byte, maxDataFrame)))
			}
		}
		all := in.Len()
		flight := newInFlight()
		got, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			reader := newFrameReader(&in, flight, func() {})
			for {
				n, err := reader.Read(make([]byte, 4<<10))
				if got += n; err != nil {
					return
				}
			}
		}()
		const most = maxInFlight + maxInFlight/maxDataFrame*spdyHeader + 5*18 // with the headers of frames
		synctest.Wait()
		if got > most || got < maxInFlight {
			t.Errorf("%d bytes are given to the library, want %d at most", got, most)
		}
		flight.read(1, 10*maxDataFrame)
		synctest.Wait()
		if rest := got - most; rest <= 0 || rest > 10*(maxDataFrame+spdyHeader) {
			t.Errorf("%d bytes more after 10 frames were read", rest)
		}
		for id := uint32(1); id < 10; id += 2 {
			flight.end(id)
		}
		<-done // the rest is for nobody
		if got >= all {
			t.Error("data of streams that have ended is given to the library")
		}
	})
}

// Data for streams that are not open does not reach the library; the frames behind it do.
func TestDataOfNoStream(t *testing.T) {
	var in bytes.Buffer
	in.Write(dataFrame(9, 0, make([]byte, 100<<10)))
	in.Write(synFrame(1))
	in.Write(dataFrame(9, 1, nil))
	in.Write(dataFrame(1, 1, []byte("hello")))
	flight := newInFlight()
	got, err := io.ReadAll(newFrameReader(&in, flight, func() {}))
	if want := append(synFrame(1), dataFrame(1, 1, []byte("hello"))...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v: %q", len(got), err, got)
	}
}

// Nothing is kept of a stream that was refused, with any flags.
func TestRefusedStreamsAreForgotten(t *testing.T) {
	for _, flags := range []spdy.ControlFlags{0, spdy.ControlFlagFin, spdy.ControlFlagUnidirectional} {
		client, server := net.Pipe()
		flight := newInFlight()
		conn, err := newSPDYConn(t.Context(), newFrameConn(server, 0, flight, func() {}), func() {}, func(*spdystream.Stream) error { return errSessionEnded })
		if err != nil {
			t.Fatal(err)
		}
		framer, err := spdy.NewFramer(client, client)
		if err != nil {
			t.Fatal(err)
		}
		go func() { // what a session does
			<-conn.CloseChan()
			server.Close()
		}()
		const workers = 5
		go func() { // fails once the connection is closed
			for id := range spdy.StreamId(10) {
				_ = framer.WriteFrame(&spdy.SynStreamFrame{StreamId: 2*id + 1, CFHeader: spdy.ControlFrameHeader{Flags: flags}})
			}
			for id := range uint32(workers) { // each worker of the library answers one, after its streams
				_ = framer.WriteFrame(&spdy.PingFrame{Id: 2*id + 1})
			}
		}()
		for pings := 0; pings < workers; {
			frame, err := framer.ReadFrame()
			if err != nil {
				break
			}
			if _, ok := frame.(*spdy.PingFrame); ok {
				pings++
			}
		}
		flight.mu.Lock()
		if len(flight.inputs) > 0 {
			t.Errorf("flags %d: %d streams are kept", flags, len(flight.inputs))
		}
		flight.mu.Unlock()
		client.Close()
		<-conn.CloseChan()
	}
}

// A connection that is closed lets nobody wait for room.
func TestCloseWithDataInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flight := newInFlight()
		flight.open(1)
		if !flight.add(1, maxInFlight) {
			t.Fatal("there is no room for the first bytes")
		}
		result := make(chan bool, 1)
		go func() { result <- flight.add(1, 1) }()
		synctest.Wait()
		flight.close()
		if <-result {
			t.Error("data was let in after the end")
		}
	})
}
