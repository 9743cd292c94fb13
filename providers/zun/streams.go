package zun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// containerPath returns the path of something of a container of a unit.
func containerPath(u *podgroup.Unit, name, what string, query url.Values) string {
	ids, _ := u.Data.(map[string]string)
	return "containers/" + ids[name] + "/" + what + "?" + query.Encode()
}

// hidden explains that a container is not found whose capsule exists.
func hidden(err error) error {
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("this version of Zun does not show containers of capsules: %w", errors.ErrUnsupported)
	}
	return err
}

// maxLog is how much of a log is read at once.
const maxLog = 64 << 20

// ReadLog implements podgroup.LogReader.
func (b *backend) ReadLog(ctx context.Context, u *podgroup.Unit, name string, q podgroup.LogQuery) (text string, err error) {
	if q.Previous {
		return "", errdefs.InvalidInput("Zun keeps no log of the run before")
	}
	query := url.Values{"stdout": {"true"}, "stderr": {"true"}, "timestamps": {strconv.FormatBool(q.Timestamps)}}
	if q.Tail > 0 {
		query.Set("tail", strconv.Itoa(q.Tail))
	}
	if !q.Since.IsZero() {
		query.Set("since", strconv.FormatInt(q.Since.Unix(), 10))
	}
	tooLong := false
	err = b.call(ctx, podgroup.ActionLog, func(client *gophercloud.ServiceClient) error {
		response, err := client.Get(ctx, client.ServiceURL(containerPath(u, name, "logs", query)), nil, &gophercloud.RequestOpts{KeepResponseBody: true})
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxLog+1))
		tooLong = len(body) > maxLog
		if err == nil && !tooLong && json.Unmarshal(body, &text) != nil { // the reference has text, the server sends a string in JSON
			text = string(body)
		}
		return err
	})
	if tooLong {
		return "", errdefs.InvalidInputf("the log is longer than %d MiB: ask for less of it, by --tail or --since", maxLog>>20)
	}
	return strings.ReplaceAll(text, "\r\n", "\n"), hidden(err)
}

// Exec implements podgroup.Execer. Zun runs a command without input, returns its output and
// errors in one, and gives up after the time of its configuration, five seconds by default.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, name string, command []string, attach api.AttachIO) error {
	if attach.TTY() || attach.Stdin() != nil {
		return fmt.Errorf("commands of Zun have neither a terminal nor input: leave out -t and -i: %w", errors.ErrUnsupported)
	}
	quoted := make([]string, len(command))
	for i, word := range command { // Zun splits it as a shell does
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
	}
	query := url.Values{"run": {"true"}, "interactive": {"false"}, "command": {strings.Join(quoted, " ")}}
	var result struct {
		Output   string `json:"output"`
		ExitCode int    `json:"exit_code"`
	}
	err := b.call(ctx, podgroup.ActionExec, func(client *gophercloud.ServiceClient) error {
		_, err := client.Post(ctx, client.ServiceURL(containerPath(u, name, "execute", query)), nil, &result, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}}) //nolint:bodyclose // the client closes it
		return err
	})
	if err != nil {
		return hidden(err)
	}
	if attach.Stdout() != nil {
		if _, err := io.WriteString(attach.Stdout(), result.Output); err != nil {
			return err
		}
	}
	return podgroup.ExitError(result.ExitCode)
}
