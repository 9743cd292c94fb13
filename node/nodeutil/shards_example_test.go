package nodeutil_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// Several processes share the nodes vk-0, vk-1 and so on, each of which is a shard
// of its own. The fleet runs elsewhere, and for longer.
func ExampleShards() {
	run := func(ctx context.Context, client kubernetes.Interface, fleet *nodeutil.Fleet, newProvider nodeutil.NewProviderFunc, identity string) error {
		shards := nodeutil.Shards{Client: client, Name: "vk", Count: 10, Identity: identity}
		return shards.Run(ctx, func(ctx context.Context, shard int) {
			name := fmt.Sprint("vk-", shard)
			if _, err := fleet.Add(name, newProvider); err != nil {
				return // the shard is given away, and taken again
			}
			<-ctx.Done()
			var how []nodeutil.RemoveOption
			if errors.Is(context.Cause(ctx), node.ErrHandedOver) {
				how = append(how, nodeutil.KeepingReady())
			}
			_ = fleet.Remove(context.WithoutCancel(ctx), name, how...)
		})
	}
	_ = run
}
