package eci

import (
	"context"
	"strconv"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// ReadLog implements podgroup.LogReader. The API keeps the newest part of a log.
func (b *backend) ReadLog(ctx context.Context, u *podgroup.Unit, container string, q podgroup.LogQuery) (string, error) {
	tail := maxTail // the API's default is less
	if q.Tail > 0 {
		tail = min(q.Tail, maxTail)
	}
	p := params{"ContainerGroupId": u.ID, "ContainerName": container, "Tail": strconv.Itoa(tail)}
	if !q.Since.IsZero() {
		p["StartTime"] = q.Since.UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	if q.Previous {
		p["LastTime"] = "true"
	}
	if q.Timestamps {
		p["Timestamps"] = "true"
	}
	response := eci.CreateDescribeContainerLogResponse()
	err := b.client.call(ctx, podgroup.ActionLog, "DescribeContainerLog", p, response)
	return response.Content, err
}
