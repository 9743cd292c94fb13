package fargate_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate"
)

// A node whose pods are tasks on Fargate. The binary takes credentials from the chain of AWS's
// tools (package config of the SDK).
func Example() {
	config, err := fargate.ParseConfig([]byte("region: eu-west-1\nsubnets: [subnet-12345678]\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	account := aws.Config{Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	n, err := nodeutil.NewNode("fargate-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := fargate.New(cfg, config, account)
		if err != nil {
			return nil, nil, err
		}
		return p, p, nil
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
