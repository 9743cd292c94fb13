package fargate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Exec implements podgroup.Execer, by ECS Exec: a session of Session Manager with a terminal,
// which has one output and no exit code. A shell in the container marks what is error output,
// and adds the code.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, container string, command []string, attach api.AttachIO) error {
	if data, ok := u.Data.(taskData); ok && !data.commands {
		return errdefs.InvalidInput("the task was created without a role, which commands in its containers need: set taskRoleArn, or the annotation " + annotationRole + ", and create the pod again")
	}
	token := rand.Text()
	out, err := b.openSession(ctx, &ecs.ExecuteCommandInput{
		Cluster: &b.cfg.ClusterName, Task: &u.ID, Container: &container, Interactive: true, Command: new(commandLine(script(token, attach), command)),
	})
	if err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout) // the session has begun: a client that has left by now ends it
	defer cancel()
	conn, response, err := b.dialer.DialContext(dial, aws.ToString(out.Session.StreamUrl), nil)
	if err != nil {
		status := 0
		if response != nil {
			status = response.StatusCode
		}
		return errdefs.AsUnavailable(fmt.Errorf("the session of the command cannot be connected to, status %d: %w", status, err))
	}
	s := newSession(conn, attach, token)
	code, err := s.run(ctx, aws.ToString(out.Session.TokenValue))
	if err != nil {
		return err
	}
	return podgroup.ExitError(code)
}

// The agent that runs commands may need some seconds more than its container to start. ECS then
// refuses commands: they are tried agentTries times, agentDelay apart.
const agentTries, agentDelay = 6, 2 * time.Second

func (b *backend) openSession(ctx context.Context, in *ecs.ExecuteCommandInput) (*ecs.ExecuteCommandOutput, error) {
	for try := 1; ; try++ {
		out, err := b.api.ExecuteCommand(ctx, in)
		if err == nil || try == agentTries || !isAgentAway(err) {
			return out, classify(podgroup.ActionExec, err)
		}
		if err := periodic.Sleep(ctx, agentDelay); err != nil {
			return nil, err
		}
	}
}

// isAgentAway reports whether ECS refuses a command because the agent does not run, or is not
// connected yet.
func isAgentAway(err error) bool {
	refused, ok := errors.AsType[*types.InvalidParameterException](err)
	return ok && strings.Contains(refused.ErrorMessage(), "execute command agent isn") || errors.As(err, new(*types.TargetNotConnectedException))
}

// dialTimeout is how long a session may take to be connected to.
const dialTimeout = 45 * time.Second

// mark begins what the shell adds to the output. A token that nobody knows follows, and a
// letter.
const mark = "\x1e"

// The letters: the beginning of the output, a line of errors, and the exit code, whose end is
// another mark.
const (
	markBegin = "b"
	markError = "e"
	markCode  = "c"
)

// script returns the script that runs "$@". It waits for the client, which ends it when it has
// the exit code: what is printed last can be lost when a terminal closes meanwhile, since Linux
// may report the other side's end before data that came with it.
func script(token string, attach api.AttachIO) string {
	begin, end := `printf '\036`+token+markBegin+`'; `, `; printf '\036`+token+markCode+`%s\036' "$c"`
	const wait = "; sleep 1"
	if attach.TTY() {
		return `trap : INT QUIT; ` + begin + `"$@"; c=$?` + end + wait // the signals are for the command
	}
	// Errors go through a pipe, the output and the exit code around it. What a terminal takes as
	// input are lines without controls: each is decoded as it comes.
	run := `{ c=$( { { "$@" 2>&1 >&3 3>&- 4>&- </dev/null; echo $? >&4; } | ` +
		`while IFS= read -r l || [ -n "$l" ]; do printf '\036` + token + markError + `%s\n' "$l"; done >&3; } 4>&1 )` + end + ` >&3` + wait + `; }`
	if attach.Stdin() != nil {
		run = strings.Replace(run, "</dev/null", "<&0", 1)
		return `exec 3>&1; stty -echo || exit; ` + begin + `while IFS= read -r i; do printf %b "$i" || break; done | ` + run
	}
	return "exec 3>&1; " + begin + run
}

// commandLine returns a command as the agent takes it: words, quoted as a shell does, that no
// shell reads.
func commandLine(script string, command []string) string {
	words := append([]string{"sh", "-c", script, "sh"}, command...)
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
