package podgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// minSecretValue is how long a value of a variable is that may be from a Secret: an error without
// "true" and "8080" could not be read.
const minSecretValue = 8

// Secrets returns what of the request must not be in an error or a log, although a service may
// repeat it: values of variables, contents of files and passwords. Which of them are from Secrets
// is not known.
func (r *Request) Secrets() (secrets []string) {
	for _, files := range r.Files {
		for _, file := range files {
			secrets = append(secrets, string(file.Data))
		}
	}
	for _, login := range r.Logins {
		secrets = append(secrets, login.Password)
	}
	return append(secrets, EnvSecrets(r.Pod)...)
}

// EnvSecrets returns the values of variables of pods, without short ones.
func EnvSecrets(pods ...*corev1.Pod) (secrets []string) {
	for _, pod := range pods {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, v := range c.Env {
				if len(v.Value) >= minSecretValue {
					secrets = append(secrets, v.Value)
				}
			}
		}
	}
	return secrets
}
