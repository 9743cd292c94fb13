package reflection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// copyContent is the desired content of a copy.
type copyContent struct {
	Labels map[string]string
	Type   corev1.SecretType
	Text   map[string]string // of a ConfigMap
	Data   map[string][]byte

	renew  time.Time // when to renew it; zero for never
	failed error     // of the files that cannot be read, which stay as they are
}

func (c *copyContent) sum() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // maps of strings and bytes can always be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// contentOf returns the desired content of a copy. An error of class NotFound means
// that the original does not exist; nil means that the content is unknown. lost reports
// that the copy existed and is gone.
func (r *Reflector) contentOf(ctx context.Context, of ref, first *registeredPod, lost bool) (*copyContent, error) {
	home := r.opts.Translate.Home
	wanted := &copyContent{Labels: home.LabelsOf(of.namespace, "")}
	switch of.kind {
	case translate.KindConfigMap:
		original, err := r.opts.Objects.ConfigMap(ctx, of.namespace, of.name)
		if err != nil {
			return nil, err
		}
		wanted.Text, wanted.Data = original.Data, original.BinaryData
	case translate.KindSecret:
		original, err := r.opts.Objects.Secret(ctx, of.namespace, of.name)
		if err != nil {
			return nil, err
		}
		if original.Type == corev1.SecretTypeServiceAccountToken && r.opts.Translate.NoTokens {
			return nil, errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: secret %q is a token of a service account: the provider's configuration has tokens: disabled", of.name))
		}
		wanted.Type, wanted.Data = secretType(original.Type), original.Data
	case translate.KindEnvironment:
		env := first.env
		if env == nil && (!lost || r.opts.Environment == nil) {
			return nil, nil
		}
		if env == nil {
			var err error
			if env, err = r.opts.Environment(ctx, first.pod); err != nil {
				// Hide the class of the error: it is not the original that is missing.
				return nil, fmt.Errorf("cannot resolve the environment of the pod: %v", err)
			}
		}
		wanted.Labels = home.LabelsOf(of.namespace, types.UID(of.name))
		wanted.Type, wanted.Data = corev1.SecretTypeOpaque, maps.Clone(env)
		if len(first.kept) > 0 {
			if _, err := r.keep(ctx, of, wanted, first.kept); err != nil {
				return nil, err
			}
		}
	case translate.KindFiles:
		wanted.Labels = home.LabelsOf(of.namespace, types.UID(of.name))
		wanted.Type, wanted.Data = corev1.SecretTypeOpaque, map[string][]byte{}
		if unread := r.readFiles(ctx, first.pod, wanted); wanted.failed != nil {
			if err := r.keepFiles(ctx, of, wanted, unread); err != nil {
				return nil, err
			}
		}
	}
	// Immutable is not copied: the original may be replaced by one with other contents.
	return wanted, nil
}

// secretType keeps the types that the kubelet evaluates. The API server validates
// others, or controllers act on them.
func secretType(of corev1.SecretType) corev1.SecretType {
	if of == corev1.SecretTypeDockerConfigJson || of == corev1.SecretTypeDockercfg {
		return of
	}
	return corev1.SecretTypeOpaque
}

// readFiles reads the tokens and downward API files of a pod. One that cannot be read, as
// if a token is refused, does not keep the others from being renewed: wanted.failed is its
// error, and unread are the keys of such files.
func (r *Reflector) readFiles(ctx context.Context, pod *corev1.Pod, wanted *copyContent) (unread []string) {
	sources := r.sources
	if r.opts.NodeAllocatable != nil {
		sources.NodeAllocatable = r.opts.NodeAllocatable()
	}
	for _, v := range translate.Files(pod) {
		v, left := r.opts.Translate.WithoutTokens(pod, v)
		for _, path := range left {
			// A pod that was created before tokens were disabled refers to this key.
			// Without it, the volume could not be mounted again.
			wanted.Data[translate.FileKey(v.Name, path)] = []byte{}
		}
		for _, source := range v.Projected.Sources {
			one := corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}}
			files, renew, err := sources.Contents(ctx, pod, &one)
			if err != nil {
				// Hide the class of the error: it is not an original that is missing.
				wanted.failed = errors.Join(wanted.failed, fmt.Errorf("volume %q: %v", v.Name, err))
				for _, path := range translate.FilePaths(&source) {
					unread = append(unread, translate.FileKey(v.Name, path))
				}
			}
			for path, file := range files {
				wanted.Data[translate.FileKey(v.Name, path)] = file.Data
			}
			if !renew.IsZero() && (wanted.renew.IsZero() || renew.Before(wanted.renew)) {
				wanted.renew = renew
			}
		}
	}
	return unread
}

// keepFiles takes the files that cannot be read from the copy in the remote cluster. It
// returns wanted.failed if there is no copy: a pod cannot start without them.
func (r *Reflector) keepFiles(ctx context.Context, of ref, wanted *copyContent, unread []string) error {
	found, err := r.keep(ctx, of, wanted, unread)
	if err != nil {
		return errors.Join(wanted.failed, err)
	}
	if !found {
		return wanted.failed
	}
	return nil
}

// keep takes keys from the copy in the remote cluster, and reports whether there is one.
func (r *Reflector) keep(ctx context.Context, of ref, wanted *copyContent, keys []string) (found bool, err error) {
	at, err := r.remoteName(of)
	if err != nil {
		return false, err
	}
	object, err := r.get(ctx, of.kind, at)
	if err != nil {
		return false, err
	}
	before, ok := object.(*corev1.Secret)
	if !ok {
		return false, nil
	}
	for _, key := range keys {
		if value, ok := before.Data[key]; ok {
			wanted.Data[key] = value
		}
	}
	return true, nil
}
