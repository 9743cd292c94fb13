package controlplane_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

func ExampleStart() {
	ctx := context.Background()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binary: "bin/controlplane"})
	if err != nil {
		fmt.Println(err) // find the control plane's binary (run "make controlplane"): ...
		return
	}
	defer cluster.Stop()

	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(nodes.Items))
}
