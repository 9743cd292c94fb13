package aci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// ReadLog implements podgroup.LogReader. Azure has up to 4 MB of the current run; since which
// time is decided here.
func (b *backend) ReadLog(ctx context.Context, u *podgroup.Unit, name string, q podgroup.LogQuery) (string, error) {
	if q.Previous {
		return "", errdefs.InvalidInput("Azure keeps no log of the run before")
	}
	options := &aci.ContainersClientListLogsOptions{Timestamps: new(q.Timestamps || !q.Since.IsZero())}
	if q.Tail > 0 && q.Since.IsZero() { // else lines that are left out would count
		options.Tail = new(int32(min(q.Tail, 1<<30))) // #nosec G115 -- it is limited
	}
	got, err := b.containers.ListLogs(ctx, b.cfg.ResourceGroup, u.ID, name, options)
	if err != nil {
		return "", classify(podgroup.ActionLog, err)
	}
	text := strings.ReplaceAll(valueOf(got.Content), "\r\n", "\n")
	if q.Since.IsZero() {
		return text, nil
	}
	return since(text, q), nil
}

// since returns the lines with timestamps that a query wants.
func since(text string, q podgroup.LogQuery) string {
	var lines []string
	wanted := false
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(line, " ")
		if at, err := time.Parse(time.RFC3339, strings.TrimSpace(stamp)); err == nil {
			wanted = !at.Before(q.Since)
			if !q.Timestamps {
				line = rest
			}
		} // else the line belongs to the one before
		if wanted {
			lines = append(lines, line)
		}
	}
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	return strings.Join(lines, "")
}

// Attach implements podgroup.Attacher: Azure streams the output, and takes no input.
func (b *backend) Attach(ctx context.Context, u *podgroup.Unit, name string, attach api.AttachIO) error {
	if attach.Stdin() != nil || attach.TTY() {
		return fmt.Errorf("the main process of a container has neither input nor a terminal in Azure: leave out -i and -t: %w", errors.ErrUnsupported)
	}
	got, err := b.containers.Attach(ctx, b.cfg.ResourceGroup, u.ID, name, nil)
	if err != nil {
		return classify(podgroup.ActionExec, err)
	}
	conn, err := b.dial(ctx, valueOf(got.WebSocketURI), http.Header{"Authorization": {valueOf(got.Password)}})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return ended(ctx, err)
		}
		if out := attach.Stdout(); out != nil {
			if _, err := out.Write(message); err != nil {
				return err
			}
		}
	}
}

// dial opens a WebSocket of Azure. Its address is a secret for a while.
func (b *backend) dial(ctx context.Context, uri string, header http.Header) (*websocket.Conn, error) {
	conn, response, err := b.dialer.DialContext(ctx, uri, header)
	if response != nil {
		_ = response.Body.Close() // it is in memory
	}
	if err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("cannot open the WebSocket that Azure has given out: %w", err))
	}
	return conn, nil
}

// ended returns why a WebSocket has ended, nil if it was in order.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived), errors.Is(err, io.EOF):
		return nil
	}
	return errdefs.AsUnavailable(fmt.Errorf("the WebSocket of Azure failed: %w", err))
}
