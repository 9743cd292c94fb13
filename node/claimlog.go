package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// explainClaim says what is wrong with the API server, or with what this process is to
// it, and what to do, for an operator who starts a node for the first time.
func explainClaim(err error) error {
	var noAnswer *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the credentials of this process, which may have expired or belong to another cluster: %w", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf(`the API server does not allow this process what a node needs, which "virtual-kubelet config print-rbac" prints: %w`, err)
	case errors.As(err, &noAnswer):
		return fmt.Errorf("the API server cannot be reached: see whether it runs, and whether its address is right: %w", err)
	}
	return err
}

func logClaim(ctx context.Context, err error, delay time.Duration) {
	logger := log.G(ctx).WithError(err).WithField("delay", delay.String())
	switch {
	case apierrors.IsUnauthorized(err):
		logger.Error("The credentials of this process are refused; will try again")
	case apierrors.IsForbidden(err):
		logger.Error("This process lacks rights; will try again")
	case errors.Is(err, ErrNodeRefused):
		logger.Error("The node is refused; will try again")
	default:
		logger.Warn("Cannot claim the node yet; will try again")
	}
}
