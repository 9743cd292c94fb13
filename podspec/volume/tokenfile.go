package volume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// tokenMode is the mode of a token that only one user or group is to read.
const tokenMode = 0o600

// token adds the file of a projected service account token.
func (c *contents) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) {
	token, err := c.Tokens.Token(ctx, c.pod, source.Audience, source.ExpirationSeconds)
	if err != nil {
		c.problem(fmt.Errorf("failed to fetch token: %w", aside(err)))
		return
	}
	c.renew = earliest(c.renew, token.Renew)
	c.problem(c.files.put(source.Path, c.tokenFile(token.Value)))
}

// tokenFile decides which users may read a token, as KEP-1205 has it: the pod's group
// if there is one (the writer adds its permission), the user of all containers
// if they have one in common, else every user that can read the other files.
func (c *contents) tokenFile(value string) File {
	file := File{Data: []byte(value), Mode: modeOf(c.mode), UID: commonUser(c.pod)}
	if file.UID != nil || fsGroup(c.pod) != nil {
		file.Mode = tokenMode
	}
	return file
}

// commonUser returns the user that the spec gives to all containers. Ephemeral
// ones do not count: they come later, and files cannot change hands for them.
func commonUser(pod *corev1.Pod) *int64 {
	var user *int64
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			own := runAsUser(pod, &containers[i])
			if own == nil || user != nil && *user != *own {
				return nil
			}
			user = own
		}
	}
	return user
}

func runAsUser(pod *corev1.Pod, c *corev1.Container) *int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return c.SecurityContext.RunAsUser
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.RunAsUser
	}
	return nil
}

func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// earliest returns the earlier time; one that is zero does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
