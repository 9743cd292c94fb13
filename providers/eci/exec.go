package eci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// RunInContainer runs a command in a container. The API returns the URL of a WebSocket,
// which is connected to the client.
func (p *Provider) RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error {
	if len(cmd) == 0 {
		return errdefs.InvalidInput("there is no command to run")
	}
	found, err := p.find(ctx, namespace, podName, "")
	if err != nil {
		return err
	}
	c, err := containerIn(found, containerName)
	if err != nil {
		return err
	}
	if c.CurrentState.State != containerRunning {
		return errdefs.AsConflict(fmt.Errorf("container %q in pod %q is not running", containerName, podName))
	}
	address, err := p.execAddress(ctx, found.ContainerGroupId, containerName, cmd, attach)
	if err != nil {
		return err
	}
	conn, err := p.dial(ctx, address)
	if err != nil {
		return err
	}
	return newExecSession(conn, attach).run(ctx)
}

// execAddress requests the URL of a WebSocket for a command. It is a secret: anybody
// who has it can run the command.
func (p *Provider) execAddress(ctx context.Context, group, container string, cmd []string, attach api.AttachIO) (Secret, error) {
	command, err := json.Marshal(cmd)
	if err != nil {
		return "", err
	}
	request := eci.CreateExecContainerCommandRequest()
	request.RegionId, request.ContainerGroupId, request.ContainerName = p.cfg.Region, group, container
	request.Command, request.TTY = string(command), boolean(attach.TTY())
	// The SDK has no field for it.
	request.QueryParams["Stdin"] = strconv.FormatBool(attach.Stdin() != nil)
	response := eci.CreateExecContainerCommandResponse()
	if err := p.client.do(ctx, request, response); err != nil {
		return "", err
	}
	return Secret(response.WebSocketUri), nil
}

// dialTimeout is the timeout to open a WebSocket.
const dialTimeout = 30 * time.Second

func (p *Provider) dial(ctx context.Context, address Secret) (*websocket.Conn, error) {
	dialer := &websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout,
		Subprotocols: []string{channelsV5, channelsV4},
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
