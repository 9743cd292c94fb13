package huaweicci

import (
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func homeConfig() nodeutil.ProviderConfig { return grouptest.NewCluster("home-uid").Config() }
