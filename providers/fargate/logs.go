package fargate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// streamPrefix begins the names of log streams, which go on with container and task.
const streamPrefix = "virtual-kubelet"

// stream returns the name of the log stream of a container. Those of the older provider begin
// with the family of the definition.
func stream(u *podgroup.Unit, container string) string {
	prefix := streamPrefix
	if data, ok := u.Data.(taskData); ok && strings.HasPrefix(familyOf(data.definition), olderFamily) {
		prefix = familyOf(data.definition)
	}
	return prefix + "/" + container + "/" + u.ID[strings.LastIndex(u.ID, "/")+1:]
}

// pageOfLog is how many lines CloudWatch returns at once, and maxLog is at how many bytes a
// log is cut, at its beginning: it is read from its end.
const (
	pageOfLog = 10000
	maxLog    = 10 << 20
)

// ReadLog implements podgroup.LogReader: all runs of a container are one stream of CloudWatch.
func (b *backend) ReadLog(ctx context.Context, u *podgroup.Unit, container string, q podgroup.LogQuery) (string, error) {
	if q.Previous {
		return "", errdefs.InvalidInput("the runs of a container are one log in CloudWatch: read it without --previous")
	}
	if b.cfg.CloudWatchLogGroupName == "" {
		return "", fmt.Errorf("logs are not kept: set cloudWatchLogGroupName: %w", errors.ErrUnsupported)
	}
	in := &cloudwatchlogs.GetLogEventsInput{LogGroupName: &b.cfg.CloudWatchLogGroupName, StartFromHead: new(false), LogStreamName: new(stream(u, container))}
	if q.Tail > 0 {
		in.Limit = new(int32(min(q.Tail, pageOfLog))) // #nosec G115 -- limited
	}
	if !q.Since.IsZero() {
		in.StartTime = new(q.Since.UnixMilli())
	}
	var pages [][]logtypes.OutputLogEvent // the newest first
	for size, lines := 0, 0; size < maxLog && (q.Tail == 0 || lines < q.Tail); {
		out, err := b.log.GetLogEvents(ctx, in)
		if err = classify(podgroup.ActionLog, err); errdefs.IsNotFound(err) { // it has printed nothing yet
			return "", nil
		} else if err != nil {
			return "", err
		}
		for _, event := range out.Events {
			size += len(aws.ToString(event.Message))
		}
		pages, lines = append(pages, out.Events), lines+len(out.Events)
		if aws.ToString(out.NextBackwardToken) == aws.ToString(in.NextToken) { // the end, which an empty page is not
			break
		}
		in.NextToken = out.NextBackwardToken
	}
	slices.Reverse(pages)
	events := slices.Concat(pages...)
	if q.Tail > 0 {
		events = events[max(0, len(events)-q.Tail):]
	}
	var text strings.Builder
	for _, event := range events {
		if q.Timestamps {
			text.WriteString(time.UnixMilli(aws.ToInt64(event.Timestamp)).UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(strings.TrimSuffix(aws.ToString(event.Message), "\n") + "\n")
	}
	return text.String(), nil
}
