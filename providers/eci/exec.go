package eci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Exec implements podgroup.Execer. The API returns the URL of a WebSocket, which is
// connected to the client.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, container string, cmd []string, attach api.AttachIO) error {
	if len(cmd) > maxWords {
		return errdefs.InvalidInputf("the command has %d words, and ECI takes %d: use sh -c with one text", len(cmd), maxWords)
	}
	for _, word := range cmd {
		if n := utf8.RuneCountInString(word); n > maxWord {
			return errdefs.InvalidInputf("a word of the command has %d characters, and ECI takes %d: put the rest into the input, or into a file", n, maxWord)
		}
	}
	address, err := b.execAddress(ctx, u.ID, container, cmd, attach)
	if err != nil {
		return err
	}
	conn, err := b.dial(ctx, address)
	if err != nil {
		return err
	}
	return podgroup.RunChannels(ctx, conn, attach)
}

// execAddress requests the URL of a WebSocket for a command. It is a secret: anybody
// who has it can run the command.
func (b *backend) execAddress(ctx context.Context, group, container string, cmd []string, attach api.AttachIO) (Secret, error) {
	p := params{
		"ContainerGroupId": group, "ContainerName": container, "Command": jsonText(cmd),
		"TTY": strconv.FormatBool(attach.TTY()), "Stdin": strconv.FormatBool(attach.Stdin() != nil),
	}
	response := eci.CreateExecContainerCommandResponse()
	err := b.client.call(ctx, podgroup.ActionExec, "ExecContainerCommand", p, response)
	return Secret(response.WebSocketUri), err
}

// dialTimeout is the timeout to open a WebSocket.
const dialTimeout = 30 * time.Second

func (b *backend) dial(ctx context.Context, address Secret) (*websocket.Conn, error) {
	dialer := &websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout,
		Subprotocols: podgroup.ChannelProtocols,
	}
	conn, response, err := dialer.DialContext(ctx, address.Reveal(), nil)
	if response != nil && response.Body != nil {
		_ = response.Body.Close()
	}
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, websocket.ErrBadHandshake):
		return nil, errdefs.AsUnavailable(fmt.Errorf("ECI refused the WebSocket of a command: %s", response.Status))
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	// The error may contain the URL.
	return nil, errdefs.AsUnavailable(errors.New("cannot reach the WebSocket of ECI for a command: check that this machine can reach the address of ECI's exec service"))
}
