package ec2

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// What an account's sources of settings, the environment and the profile, may have to say of the
// endpoint. The SDK's own clients ask them the same.
type (
	endpointSource interface {
		GetServiceBaseEndpoint(ctx context.Context, service string) (url string, found bool, err error)
	}
	ignoringSource interface {
		GetIgnoreConfiguredEndpoints(ctx context.Context) (ignored, found bool, err error)
	}
	fipsSource interface {
		GetUseFIPSEndpoint(ctx context.Context) (state aws.FIPSEndpointState, found bool, err error)
	}
)

// settingOf returns what the first of an account's sources that has a setting says; the zero value if
// none has.
func settingOf[S, V any](account aws.Config, ask func(S) (V, bool, error)) (V, error) {
	var none V
	for _, source := range account.ConfigSources {
		if s, ok := source.(S); ok {
			if value, found, err := ask(s); err != nil || found {
				return value, err
			}
		}
	}
	return none, nil
}

// endpointOf returns the URL of EC2 in a region, as the SDK's own client finds it: the one that the
// environment (AWS_ENDPOINT_URL_EC2, AWS_ENDPOINT_URL) or the profile names, or else that of the
// region, which meets FIPS 140 if they ask for that.
func endpointOf(account aws.Config, region string) (string, error) {
	ctx := context.Background() // nothing is called
	ignored, err := settingOf(account, func(s ignoringSource) (bool, bool, error) { return s.GetIgnoreConfiguredEndpoints(ctx) })
	if err != nil {
		return "", err
	}
	if !ignored {
		url, err := settingOf(account, func(s endpointSource) (string, bool, error) { return s.GetServiceBaseEndpoint(ctx, "EC2") })
		if err != nil || url != "" {
			return url, err
		}
	}
	if account.BaseEndpoint != nil {
		return *account.BaseEndpoint, nil
	}
	fips, err := settingOf(account, func(s fipsSource) (aws.FIPSEndpointState, bool, error) { return s.GetUseFIPSEndpoint(ctx) })
	if err != nil {
		return "", err
	}
	host, suffix := "ec2", "amazonaws.com"
	if fips == aws.FIPSEndpointStateEnabled && !strings.HasPrefix(region, "us-gov-") { // where all do
		host = "ec2-fips"
	}
	switch {
	case strings.HasPrefix(region, "cn-"):
		suffix = "amazonaws.com.cn"
	case strings.HasPrefix(region, "eusc-"):
		suffix = "amazonaws.eu"
	}
	return "https://" + host + "." + region + "." + suffix, nil
}
