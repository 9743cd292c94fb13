package eci

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// keys are the credentials of calls: an access key, or a source of temporary ones. They
// are safe for concurrent use.
type keys struct {
	from string        // for messages
	turn chan struct{} // has room for the caller who uses source
	// source renews what it returns before that expires.
	source credentials.CredentialsProvider
}

// key is what a call is signed with.
type key struct{ id, secret, token Secret }

// newKeys returns the credentials of a configuration. An access key goes before a role.
func newKeys(c *Config) (*keys, error) {
	k := &keys{turn: make(chan struct{}, 1)}
	switch {
	case c.SecurityToken != "":
		k.source = credentials.NewStaticSTSCredentialsProvider(c.AccessKey.Reveal(), c.SecretKey.Reveal(), c.SecurityToken.Reveal())
	case c.AccessKey != "":
		k.source = credentials.NewStaticAKCredentialsProvider(c.AccessKey.Reveal(), c.SecretKey.Reveal())
	case c.OIDCTokenFile != "":
		k.from = "for the role " + c.RoleARN
		source, err := credentials.NewOIDCCredentialsProviderBuilder().WithRoleArn(c.RoleARN).WithRoleSessionName("virtual-kubelet").
			WithOIDCProviderARN(c.OIDCProviderARN).WithOIDCTokenFilePath(c.OIDCTokenFile).
			WithStsRegion(c.Region).WithEnableVpc(strings.Contains(c.Endpoint, "//eci-vpc.")).Build()
		if err != nil {
			return nil, errdefs.InvalidInputf("eci config: credentials %s: %w", k.from, err)
		}
		k.source = source
	default:
		k.from = "of the machine's role " + c.ECSRole
		k.source = credentials.NewECSRAMRoleCredentialsProvider(c.ECSRole)
	}
	return k, nil
}

// get returns the credentials for a call. Temporary ones may have to be requested first,
// which takes a few seconds at most.
func (k *keys) get(ctx context.Context) (key, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return key{}, errdefs.AsUnavailable(ctx.Err())
	}
	defer func() { <-k.turn }()
	current, err := k.source.GetCredentials()
	if err != nil {
		if refused, ok := errors.AsType[*sdkerrors.ServerError](err); ok { // the rest of it is the whole response
			err = fmt.Errorf("%d %s", refused.HttpStatus(), refused.ErrorCode())
		}
		return key{}, errdefs.AsUnavailable(fmt.Errorf("cannot get credentials %s: %w", k.from, err))
	}
	return key{Secret(current.AccessKeyId), Secret(current.AccessKeySecret), Secret(current.SecurityToken)}, nil
}

// credential returns a key as the SDK takes it.
func (k key) credential() auth.Credential {
	if k.token == "" {
		return credentials.NewAccessKeyCredential(k.id.Reveal(), k.secret.Reveal())
	}
	return credentials.NewStsTokenCredential(k.id.Reveal(), k.secret.Reveal(), k.token.Reveal())
}
