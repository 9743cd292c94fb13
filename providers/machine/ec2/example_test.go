package ec2_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2"
)

// A node whose pods each have an instance. The binary takes credentials from the chain of AWS's tools
// (package config of the SDK).
func Example() {
	config, err := machine.ParseConfigWith([]byte(`
cluster: home
stateDir: /var/lib/virtual-kubelet/machines
bootstrap: {url: "https://10.0.0.5:10271"}
types: [{name: m7i.large, cpu: 1800m, memory: 6Gi}]
ec2: {region: eu-west-1, imageID: ami-1, subnets: [subnet-0123456789abcdef0]}
`), ec2.Check)
	if err != nil {
		fmt.Println(err)
		return
	}
	account := aws.Config{Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	driver, err := ec2.New(config, account)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("machines-1", func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return machine.New(init, config, driver)
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
	// Output: machine config: ec2.imageID: "ami-1" is no AMI such as ami-0123456789abcdef0
}
