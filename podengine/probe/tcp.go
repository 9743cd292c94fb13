package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func (p *Prober) probeTCP(ctx context.Context, target Target, action *corev1.TCPSocketAction, timeout time.Duration) (Outcome, string, error) {
	address, err := target.address(action.Host, action.Port)
	if err != nil {
		return Unknown, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return Failure, err.Error(), nil
	}
	_ = conn.Close() // that it opened is all that was asked
	return Success, "", nil
}
