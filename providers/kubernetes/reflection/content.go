package reflection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// content is what a copy should have.
type content struct {
	Labels map[string]string
	Type   corev1.SecretType
	Text   map[string]string // of a ConfigMap
	Data   map[string][]byte

	renew time.Time // when to look again; zero for never
}

func (c *content) sum() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // maps of strings and bytes can be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// content returns what a copy should have; an error of class NotFound says that
// the original does not exist, nil that it is not known. lost is whether the copy was
// there and is gone.
func (r *Reflector) content(ctx context.Context, of ref, first *followed, lost bool) (*content, error) {
	home := r.opts.Translate.Home
	wanted := &content{Labels: home.LabelsOf(of.namespace, "")}
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
				// Not a missing original: the class is that of what failed in it.
				return nil, fmt.Errorf("cannot resolve the environment of the pod: %v", err)
			}
		}
		wanted.Labels = home.LabelsOf(of.namespace, types.UID(of.name))
		wanted.Type, wanted.Data = corev1.SecretTypeOpaque, env
	case translate.KindFiles:
		wanted.Labels = home.LabelsOf(of.namespace, types.UID(of.name))
		wanted.Type, wanted.Data = corev1.SecretTypeOpaque, map[string][]byte{}
		if err := r.files(ctx, first.pod, wanted); err != nil {
			return nil, err
		}
	}
	// Whether a copy is immutable is not copied: its original may be made anew
	// with other contents.
	return wanted, nil
}

// secretType keeps the types that the kubelet looks at. Others have rules of their
// own in an API server, or make controllers act.
func secretType(of corev1.SecretType) corev1.SecretType {
	if of == corev1.SecretTypeDockerConfigJson || of == corev1.SecretTypeDockercfg {
		return of
	}
	return corev1.SecretTypeOpaque
}

func (r *Reflector) files(ctx context.Context, pod *corev1.Pod, wanted *content) error {
	sources := r.sources
	if r.opts.NodeAllocatable != nil {
		sources.NodeAllocatable = r.opts.NodeAllocatable()
	}
	for _, v := range translate.Files(pod) {
		v, left := r.opts.Translate.WithoutTokens(pod, v)
		for _, path := range left {
			// A pod from before tokens were left out reads it. Without the key its
			// volume could not be mounted again.
			wanted.Data[translate.FileKey(v.Name, path)] = []byte{}
		}
		files, renew, err := sources.Contents(ctx, pod, &v)
		if err != nil {
			// Not a missing object: the class is that of what failed in it.
			return fmt.Errorf("volume %q: %v", v.Name, err)
		}
		for path, file := range files {
			wanted.Data[translate.FileKey(v.Name, path)] = file.Data
		}
		if !renew.IsZero() && (wanted.renew.IsZero() || renew.Before(wanted.renew)) {
			wanted.renew = renew
		}
	}
	return nil
}
