package eci

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// readContents reads the files of the pod's volumes that have contents, and returns
// when to read them again: when a token has to be renewed, or before the objects are no
// longer watched. The error names the volumes that could not be read.
func (p *Provider) readContents(ctx context.Context, pod *corev1.Pod) (found map[string]volume.Files, due time.Time, err error) {
	found = map[string]volume.Files{}
	sources := p.sources
	sources.NodeAllocatable = p.node.NodeAllocatable()
	p.refresher.pods.update(pod.UID, func(*podVolumes) {}) // so that adopt drops its tokens with the pod
	if hasInVolume(pod, func(string, string) bool { return true }) {
		due = time.Now().Add(rereadInterval)
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !volume.HasContents(v) {
			continue
		}
		files, renew, err := sources.Contents(ctx, pod, v)
		if due.IsZero() || !renew.IsZero() && renew.Before(due) {
			due = renew
		}
		if err != nil {
			errs = append(errs, &volume.SetUpError{Volume: v.Name, Err: err})
			continue
		}
		found[v.Name] = files
	}
	return found, due, errors.Join(errs...)
}

// refresh updates the volumes of a pod's container group if their contents have
// changed, and returns when to check again. The update names all volumes, so that it
// does not matter whether the API keeps others. A volume whose contents cannot be read
// stays as it is.
func (p *Provider) refresh(ctx context.Context, pod *corev1.Pod) (due time.Time, err error) {
	if pod.DeletionTimestamp != nil {
		return due, nil
	}
	found, err := p.groups.ofPod(ctx, pod.UID)
	if errdefs.IsNotFound(err) {
		return due, nil // it is not created yet, or gone
	}
	if err != nil || !usesVolumes(found.Status) {
		return due, err
	}
	p.refresher.pods.update(pod.UID, func(known *podVolumes) { known.scheduled = true })
	if !hasContents(pod) {
		return due, nil
	}
	p.adoptTokens(pod, &found)
	contents, due, unread := p.readContents(ctx, pod)
	request := &CreateRequest{eci.CreateCreateContainerGroupRequest(), map[string]string{}}
	request.setVolumes(pod, contents)
	want, err := volumeParams(request)
	if err != nil {
		return due, err
	}
	known := p.refresher.pods.get(pod.UID)
	if unread != nil && known.applied == nil {
		return due, unread
	}
	keepUnreadVolumes(pod, contents, want, known.applied)
	same := maps.Equal(want, known.applied)
	if known.applied == nil {
		same = !contentsDiffer(&found, *request.Volume)
	}
	if !same || known.unconfirmed {
		if err := p.updateVolumes(ctx, pod, found.ContainerGroupId, want); err != nil {
			return due, err
		}
	}
	p.refresher.pods.recordApplied(pod.UID, want)
	return due, unread
}

// updateVolumes updates the volumes of a group. The API has no parameters for the modes
// of files in an update.
func (p *Provider) updateVolumes(ctx context.Context, pod *corev1.Pod, id string, volumes map[string]string) error {
	update := eci.CreateUpdateContainerGroupRequest()
	update.RegionId, update.ContainerGroupId = p.cfg.Region, id
	maps.Copy(update.GetFormParams(), volumes)
	maps.DeleteFunc(update.GetFormParams(), func(name, _ string) bool { return strings.HasSuffix(name, "Mode") })
	err := p.client.do(ctx, update, eci.CreateUpdateContainerGroupResponse())
	switch {
	case err == nil:
		log.G(ctx).Info("Updated the volumes of the pod")
	case errdefs.IsUnavailable(err):
		p.refresher.pods.update(pod.UID, func(known *podVolumes) { known.unconfirmed = true })
	case errdefs.IsNotFound(err):
		return nil // it was deleted meanwhile
	}
	return err
}

// volumeParams returns the parameters of a request that are about volumes.
func volumeParams(request *CreateRequest) (map[string]string, error) {
	params, err := request.Params()
	maps.DeleteFunc(params, func(name, _ string) bool { return !strings.HasPrefix(name, "Volume.") })
	return params, err
}

// keepUnreadVolumes adds to want the last applied parameters of the volumes whose
// contents could not be read.
func keepUnreadVolumes(pod *corev1.Pod, contents map[string]volume.Files, want, applied map[string]string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, read := contents[v.Name]; read || !volume.HasContents(v) {
			continue
		}
		prefix := "Volume." + strconv.Itoa(i+1) + "."
		for name, value := range applied {
			if strings.HasPrefix(name, prefix) {
				want[name] = value
			}
		}
	}
}

// hasContents reports whether a pod has volumes whose files the provider writes.
func hasContents(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.HasContents(&v) })
}

// adoptTokens adds the tokens that the listing reports for a group to the cache of
// tokens, so that tokens requested by an earlier process are renewed when they are due,
// not at once.
func (p *Provider) adoptTokens(pod *corev1.Pod, found *group) {
	shown := reportedFiles(found)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for _, from := range v.Projected.Sources {
			if token := from.ServiceAccountToken; token != nil {
				text := shown[v.Name][token.Path]
				if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
					text = string(plain)
				}
				p.sources.Tokens.Adopt(pod.UID, token.Audience, token.ExpirationSeconds, text)
			}
		}
	}
}

// reportedFiles returns the contents that the listing reports for a group, by volume
// and path.
func reportedFiles(found *group) map[string]map[string]string {
	shown := map[string]map[string]string{}
	for _, v := range found.Volumes {
		shown[v.Name] = map[string]string{}
		for _, f := range v.ConfigFileVolumeConfigFileToPaths {
			shown[v.Name][f.Path] = f.Content
		}
	}
	return shown
}

// contentsDiffer reports whether the volumes that the listing reports for a group
// differ from want.
func contentsDiffer(found *group, want []eci.CreateContainerGroupVolume) bool {
	shown := reportedFiles(found)
	for _, v := range want {
		if v.Type != configFileVolume {
			continue
		}
		files := *v.ConfigFileVolume.ConfigFileToPath
		if len(files) != len(shown[v.Name]) {
			return true
		}
		for _, f := range files {
			content, ok := shown[v.Name][f.Path]
			plain := base64.StdEncoding.EncodeToString([]byte(content)) // the API may not return it as it was sent
			if !ok || content != f.Content && plain != f.Content {
				return true
			}
		}
	}
	return false
}
