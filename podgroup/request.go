package podgroup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// request returns the request for a pod, and when to read the files again.
func (p *Provider) request(ctx context.Context, pod *corev1.Pod) (r *Request, due time.Time, err error) {
	r = &Request{Pod: pod, Name: unitName(pod, p.opts.MaxName), Token: string(pod.UID)}
	if _, lists := p.backend.(Lister); lists {
		uid, err := p.units.owner.uid(ctx)
		if err != nil {
			return nil, due, err
		}
		r.Tags = p.opts.Identity.tags(pod, uid)
	}
	if r.Size, err = p.opts.Sizes.roundUp(sizeOf(pod)); err != nil {
		return nil, due, err
	}
	var errs [3]error
	r.Files, due, errs[0] = p.readFiles(ctx, pod)
	r.Logins, errs[1] = p.logins(ctx, pod)
	r.Claims, errs[2] = p.readClaims(ctx, pod)
	if p.opts.DNS != nil {
		resolv, warnings := p.opts.DNS.ForPod(pod)
		r.DNS = resolv
		p.events.recordWarnings(pod, warnings)
	} else {
		r.DNS, _ = podspec.DNS{}.ForPod(pod) // what the pod itself sets; the rest is the service's
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, due, err
	}
	if err := p.opts.Features.checkFiles(r.Files); err != nil {
		return nil, due, err
	}
	return r, due, nil
}

// requestAgain returns the request for another unit of a pod that has had one: see Replacer.
func (p *Provider) requestAgain(ctx context.Context, pod *corev1.Pod) (*Request, error) {
	pod = pod.DeepCopy()
	pod.Status = corev1.PodStatus{StartTime: pod.Status.StartTime, QOSClass: pod.Status.QOSClass}
	options := podenv.Options{}
	if p.init.HostIPs != nil {
		options.HostIPs = p.init.HostIPs()
	}
	if p.init.NodeAllocatable != nil {
		options.NodeAllocatable = p.init.NodeAllocatable()
	}
	if _, err := podenv.Resolve(pod, podenv.NewSource(ctx, p.init.Objects, p.init.Services), options); err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("the environment of the pod: %w", err))
	}
	r, _, err := p.request(ctx, pod)
	return r, err
}

// minNameLength leaves room for a hash and something to read.
const minNameLength = 30

// unitName returns a name for the unit of a pod that is unique, since it ends in a hash of
// the UID, and has at most maxLength characters: letters, digits and hyphens.
func unitName(pod *corev1.Pod, maxLength int) string {
	hash := "-" + shortHash(string(pod.UID))
	name := strings.ReplaceAll(pod.Namespace+"-"+pod.Name, ".", "-")
	return strings.TrimRight(name[:min(len(name), maxLength-len(hash))], "-") + hash
}

// shortHash returns ten characters that differ for different texts.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:5])
}

// readFiles reads the files of the pod's volumes that have contents, and returns when to
// read them again: when a token has to be renewed, or before the objects are no longer
// watched. The error names the volumes that could not be read; the others are there.
func (p *Provider) readFiles(ctx context.Context, pod *corev1.Pod) (files map[string]volume.Files, due time.Time, err error) {
	files = map[string]volume.Files{}
	sources := p.sources
	if p.init.NodeAllocatable != nil {
		sources.NodeAllocatable = p.init.NodeAllocatable()
	}
	p.renewals.update(pod.UID, func(*renewal) {}) // so that adopt drops its tokens with the pod
	if volume.HasObject(pod, func(string, string) bool { return true }) {
		due = time.Now().Add(rereadInterval)
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !p.opts.Features.reads(v) { // it has none, or is ignored
			continue
		}
		contents, renew, err := sources.Contents(ctx, pod, v)
		if due.IsZero() || !renew.IsZero() && renew.Before(due) {
			due = renew
		}
		if err != nil {
			errs = append(errs, &volume.SetUpError{Volume: v.Name, Err: err})
			continue
		}
		files[v.Name] = contents
	}
	return files, due, errors.Join(errs...)
}

// readClaims returns the volumes that the pod's claims are bound to.
func (p *Provider) readClaims(ctx context.Context, pod *corev1.Pod) (map[string]*corev1.PersistentVolume, error) {
	var errs []error
	bound := map[string]*corev1.PersistentVolume{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := claimName(pod, v)
		if name == "" {
			continue
		}
		persistent, err := p.boundTo(ctx, pod.Namespace, name)
		if err != nil {
			errs = append(errs, &volume.SetUpError{Volume: v.Name, Err: err})
			continue
		}
		bound[v.Name] = persistent
	}
	return bound, errors.Join(errs...)
}

// claimName returns the name of the claim of a volume; empty if it is of another kind.
func claimName(pod *corev1.Pod, v *corev1.Volume) string {
	if v.Ephemeral != nil {
		return ephemeral.VolumeClaimName(pod, v)
	}
	if v.PersistentVolumeClaim != nil {
		return v.PersistentVolumeClaim.ClaimName
	}
	return ""
}

// boundTo returns the volume that a claim is bound to. A claim that is not bound yet is an
// error of class Unavailable.
func (p *Provider) boundTo(ctx context.Context, namespace, name string) (*corev1.PersistentVolume, error) {
	claim, err := p.claims.PersistentVolumeClaim(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	if claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound {
		return nil, errdefs.AsUnavailable(fmt.Errorf("claim %s is not bound to a volume yet", name))
	}
	persistent, err := p.claims.PersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("volume %s of claim %s: %w", claim.Spec.VolumeName, name, err)
	}
	return persistent, nil
}

// logins returns the credentials of the registries of the pod's images, one for each
// registry, from its pull secrets. Secrets that do not exist, and images with invalid names,
// are skipped, as in the kubelet.
func (p *Provider) logins(ctx context.Context, pod *corev1.Pod) ([]Login, error) {
	var secrets []*corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := p.init.Objects.Secret(ctx, pod.Namespace, ref.Name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("failed to read pull secret %s/%s: %w", pod.Namespace, ref.Name, err)
		default:
			secrets = append(secrets, secret)
		}
	}
	ring, err := image.NewKeyring(secrets)
	if err != nil {
		return nil, err
	}
	var found []Login
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		name, err := reference.ParseNormalizedNamed(c.Image)
		if err != nil {
			continue
		}
		registry := reference.Domain(name)
		known := func(l Login) bool { return l.Registry == registry }
		if login := ring.For(name.Name()); len(login) > 0 && !slices.ContainsFunc(found, known) {
			found = append(found, Login{Registry: registry, Username: login[0].Username, Password: login[0].Password})
		}
	}
	return found, nil
}
