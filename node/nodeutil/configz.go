package nodeutil

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// defaultStreamIdleTimeout is what zero means for package api.
const defaultStreamIdleTimeout = 4 * time.Hour

// kubeletConfiguration is that part of kubelet.config.k8s.io/v1beta1 which a
// virtual node has. The whole type would name a cgroup driver and an image
// store that do not exist.
type kubeletConfiguration struct {
	metav1.TypeMeta                `json:",inline"`
	EnableServer                   bool            `json:"enableServer"`
	SyncFrequency                  metav1.Duration `json:"syncFrequency"`
	Address                        string          `json:"address,omitempty"`
	Port                           int             `json:"port,omitempty"`
	EventRecordQPS                 int32           `json:"eventRecordQPS"`
	EventBurst                     int32           `json:"eventBurst"`
	EnableDebuggingHandlers        bool            `json:"enableDebuggingHandlers"`
	StreamingConnectionIdleTimeout metav1.Duration `json:"streamingConnectionIdleTimeout"`
	NodeStatusUpdateFrequency      metav1.Duration `json:"nodeStatusUpdateFrequency"`
	NodeLeaseDurationSeconds       int32           `json:"nodeLeaseDurationSeconds,omitempty"`
	MaxPods                        int64           `json:"maxPods,omitempty"`
	EnableSystemLogHandler         bool            `json:"enableSystemLogHandler"`
	EnableProfilingHandler         bool            `json:"enableProfilingHandler"`
	EnableDebugFlagsHandler        bool            `json:"enableDebugFlagsHandler"`
	RegisterNode                   bool            `json:"registerNode"`
}

// kubeletConfig is the configuration as the kubelet would put it.
func kubeletConfig(cfg *NodeConfig) kubeletConfiguration {
	config := kubeletConfiguration{
		TypeMeta:                       metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		EnableServer:                   cfg.Handler != nil,
		SyncFrequency:                  metav1.Duration{Duration: cfg.InformerResyncPeriod},
		EnableDebuggingHandlers:        true,
		StreamingConnectionIdleTimeout: metav1.Duration{Duration: cmp.Or(cfg.StreamIdleTimeout, defaultStreamIdleTimeout)},
		NodeStatusUpdateFrequency:      metav1.Duration{Duration: node.DefaultStatusUpdateInterval},
		NodeLeaseDurationSeconds:       node.DefaultLeaseDuration,
		MaxPods:                        cfg.NodeSpec.Status.Capacity.Name(corev1.ResourcePods, "").Value(),
		EventRecordQPS:                 max(0, int32(cfg.EventQPS)), // 0 is no limit to a kubelet
		EventBurst:                     int32(cfg.EventBurst),
		EnableProfilingHandler:         cfg.DebugHTTP,
		RegisterNode:                   true,
	}
	if cfg.DisableLease {
		config.NodeStatusUpdateFrequency.Duration = node.DefaultPingInterval
		config.NodeLeaseDurationSeconds = 0
	}
	if host, port, err := net.SplitHostPort(cfg.HTTPListenAddr); err == nil {
		config.Address = cmp.Or(host, "0.0.0.0")
		config.Port, _ = net.LookupPort("tcp", port) // 0 for any free one
	}
	return config
}

// serveConfig answers /configz.
func serveConfig(cfg *NodeConfig) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]kubeletConfiguration{"kubeletconfig": kubeletConfig(cfg)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}
