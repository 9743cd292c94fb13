// Command acme is a virtual Kubernetes node whose pods run in acme.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func main() {
	nodeName := flag.String("nodename", "acme", "name of the node")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)")
	configFile := flag.String("config", "", "configuration of the provider, in YAML (default: none)")
	listen := flag.String("listen", ":10250", "address of the kubelet API")
	flag.Parse()

	config, err := ReadConfig(*configFile)
	if err != nil {
		log.Fatal(err)
	}
	n, err := nodeutil.NewNode(*nodeName, NewProvider(config), nodeutil.WithKubeletAPI(), func(cfg *nodeutil.NodeConfig) error {
		cfg.KubeconfigPath = *kubeconfig
		cfg.HTTPListenAddr = *listen
		// Only pods that tolerate it come here.
		cfg.NodeSpec.Spec.Taints = []corev1.Taint{{Key: "virtual-kubelet.io/provider", Value: "acme", Effect: corev1.TaintEffectNoSchedule}}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := n.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// NewProvider returns what makes the provider of a node.
func NewProvider(config Config) nodeutil.NewProviderFunc {
	service := &Service{} // the client of your backend
	return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		cfg.Node.Status.Capacity = config.Capacity
		cfg.Node.Status.Allocatable = config.Capacity
		p := &Provider{service: service, node: cfg.Node.Name, hostIPs: cfg.HostIPs, known: cfg.Pods}
		// AsProvider adds what the provider cannot do, such as attach, as an error that says so.
		return nodeutil.AsProvider(p), p, nil
	}
}
