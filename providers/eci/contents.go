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

// contents reads the files of the volumes of a pod that have any, and tells when to
// read them again: when a token in them is to be renewed, or before the objects are
// no longer watched. The error names the volumes that are not among them.
func (p *Provider) contents(ctx context.Context, pod *corev1.Pod) (found map[string]volume.Files, due time.Time, err error) {
	found = map[string]volume.Files{}
	sources := p.sources
	sources.NodeAllocatable = p.node.NodeAllocatable()
	p.refresher.pods.with(pod.UID, func(*followedPod) {}) // for the tokens to be forgotten with it
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

// refresh writes the contents of the volumes of a pod to its group, if it has
// others, and tells when to look again. The group is told all
// volumes, so that it does not matter whether it keeps those that it is not told
// of; one whose contents cannot be read now stays as it is.
func (p *Provider) refresh(ctx context.Context, pod *corev1.Pod) (due time.Time, err error) {
	if pod.DeletionTimestamp != nil {
		return due, nil
	}
	found, err := p.groups.ofPod(ctx, pod.UID)
	if errdefs.IsNotFound(err) {
		return due, nil // it is to be created, or is gone
	}
	if err != nil || !refreshable(found.Status) {
		return due, err
	}
	p.refresher.pods.with(pod.UID, func(known *followedPod) { known.takenUp = true })
	if !hasContents(pod) {
		return due, nil
	}
	p.adoptTokens(pod, &found)
	contents, due, unread := p.contents(ctx, pod)
	request := &CreateRequest{eci.CreateCreateContainerGroupRequest(), map[string]string{}}
	request.setVolumes(pod, contents)
	want, err := volumesOf(request)
	if err != nil {
		return due, err
	}
	known := p.refresher.pods.get(pod.UID)
	if unread != nil && known.given == nil {
		return due, unread
	}
	keepUnread(pod, contents, want, known.given)
	same := maps.Equal(want, known.given)
	if known.given == nil {
		same = !contentsDiffer(&found, *request.Volume)
	}
	if !same || known.unsure {
		if err := p.write(ctx, pod, found.ContainerGroupId, want); err != nil {
			return due, err
		}
	}
	p.refresher.pods.gave(pod.UID, want)
	return due, unread
}

// write gives a group its volumes.
func (p *Provider) write(ctx context.Context, pod *corev1.Pod, id string, volumes map[string]string) error {
	update := eci.CreateUpdateContainerGroupRequest()
	update.RegionId, update.ContainerGroupId = p.cfg.Region, id
	maps.Copy(update.GetFormParams(), volumes)
	err := p.client.do(ctx, update, eci.CreateUpdateContainerGroupResponse())
	switch {
	case err == nil:
		log.G(ctx).Info("Brought the volumes of the pod up to date")
	case errdefs.IsUnavailable(err):
		p.refresher.pods.with(pod.UID, func(known *followedPod) { known.unsure = true })
	case errdefs.IsNotFound(err):
		return nil // it has gone meanwhile
	}
	return err
}

// volumesOf are the parameters of a request that are about volumes.
func volumesOf(request *CreateRequest) (map[string]string, error) {
	params, err := request.Params()
	maps.DeleteFunc(params, func(name, _ string) bool { return !strings.HasPrefix(name, "Volume.") })
	return params, err
}

// keepUnread puts into want what was given of the volumes whose contents are not
// known.
func keepUnread(pod *corev1.Pod, contents map[string]volume.Files, want, given map[string]string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, read := contents[v.Name]; read || !volume.HasContents(v) {
			continue
		}
		prefix := "Volume." + strconv.Itoa(i+1) + "."
		for name, value := range given {
			if strings.HasPrefix(name, prefix) {
				want[name] = value
			}
		}
	}
}

// hasContents tells whether the provider writes files of a pod.
func hasContents(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.HasContents(&v) })
}

// adoptTokens takes up the tokens that a group shows to have, so that those that a
// process before this has requested are renewed when that is due, and not at once.
func (p *Provider) adoptTokens(pod *corev1.Pod, found *group) {
	shown := filesShown(found)
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

// filesShown are the contents that a group shows, by volume and path.
func filesShown(found *group) map[string]map[string]string {
	shown := map[string]map[string]string{}
	for _, v := range found.Volumes {
		shown[v.Name] = map[string]string{}
		for _, f := range v.ConfigFileVolumeConfigFileToPaths {
			shown[v.Name][f.Path] = f.Content
		}
	}
	return shown
}

// contentsDiffer tells whether a group lacks something of the volumes that it is to
// have, as far as it says what they contain.
func contentsDiffer(found *group, want []eci.CreateContainerGroupVolume) bool {
	shown := filesShown(found)
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
			plain := base64.StdEncoding.EncodeToString([]byte(content)) // should it not be told as it was given
			if !ok || content != f.Content && plain != f.Content {
				return true
			}
		}
	}
	return false
}
