//go:build !chosen_providers || provider_fargate || provider_machine

package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// credentialsTimeout is how long the chain of credentials of AWS may take.
const credentialsTimeout = 30 * time.Second

// awsAccount returns the account that the chain of AWS's tools finds: environment, profile, role of
// the service account or of the machine.
func awsAccount() (aws.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), credentialsTimeout)
	defer cancel()
	account, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return account, errdefs.InvalidInputf("credentials of AWS: %w", err)
	}
	return account, nil
}
