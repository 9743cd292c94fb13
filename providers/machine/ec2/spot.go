package ec2

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// noticeTime is between the notice that a spot instance is taken and its end.
const noticeTime = 2 * time.Minute

// takenCodes are those of a spot request whose instance EC2 takes. One that EC2 needs the capacity of
// has its last code at once, and runs on for noticeTime.
var takenCodes = []string{
	"marked-for-termination", "instance-terminated-no-capacity", "instance-terminated-by-price", "instance-terminated-capacity-oversubscribed",
	"instance-terminated-launch-group-constraint", "instance-terminated-by-service", "instance-terminated-by-experiment",
}

// spotRequest is what EC2 says of one.
type spotRequest struct {
	InstanceID string    `xml:"instanceId"`
	Updated    time.Time `xml:"status>updateTime"`
}

// notices returns when instances with these tags will be taken, by ID: one call for all of a node.
func (c *client) notices(ctx context.Context, tags map[string]string) (map[string]time.Time, error) {
	parameters := filters(tags)
	addFilter(parameters, len(tags)+1, "status-code", takenCodes...)
	parameters.Set("MaxResults", fmt.Sprint(pageSize))
	taken := map[string]time.Time{}
	for range maxPages {
		next, err := c.noticesPage(ctx, parameters, taken)
		if err != nil || next == "" {
			return taken, err
		}
		parameters.Set("NextToken", next)
	}
	return taken, errdefs.AsUnavailable(fmt.Errorf("the list of spot requests has more than %d pages", maxPages))
}

func (c *client) noticesPage(ctx context.Context, parameters url.Values, taken map[string]time.Time) (next string, err error) {
	var page struct {
		Requests []spotRequest `xml:"spotInstanceRequestSet>item"`
		Next     string        `xml:"nextToken"`
	}
	if err := c.call(ctx, describeSpot, parameters, &page); err != nil {
		return "", err
	}
	for _, r := range page.Requests {
		if r.InstanceID != "" && !r.Updated.IsZero() {
			taken[r.InstanceID] = r.Updated.Add(noticeTime)
		}
	}
	return page.Next, nil
}
