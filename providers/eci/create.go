package eci

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// readInputs reads what the request for a pod depends on, and returns when to read the
// files again.
func (p *Provider) readInputs(ctx context.Context, pod *corev1.Pod) (in Inputs, due time.Time, err error) {
	in = Inputs{Config: &p.cfg, NodeName: p.nodeName}
	if in.ClusterUID, err = p.groups.owner.uid(ctx); err != nil {
		return in, due, err
	}
	in.Contents, due, err = p.readContents(ctx, pod)
	var failed error
	in.Credentials, failed = p.credentials(ctx, pod)
	return in, due, errors.Join(err, failed)
}

// credentials returns the credentials of the registries of the pod's images, from its
// pull secrets. Secrets that do not exist are skipped, as in the kubelet.
func (p *Provider) credentials(ctx context.Context, pod *corev1.Pod) ([]eci.CreateContainerGroupImageRegistryCredential, error) {
	var secrets []*corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := p.node.Objects.Secret(ctx, pod.Namespace, ref.Name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("failed to read pull secret %s/%s: %w", pod.Namespace, ref.Name, err)
		default:
			secrets = append(secrets, secret)
		}
	}
	return Credentials(pod, secrets)
}

// Credentials returns the credentials of the registries of a pod's images, one for each
// registry, from its pull secrets. Images with invalid names are skipped.
func Credentials(pod *corev1.Pod, secrets []*corev1.Secret) ([]eci.CreateContainerGroupImageRegistryCredential, error) {
	ring, err := image.NewKeyring(secrets)
	if err != nil {
		return nil, err
	}
	var found []eci.CreateContainerGroupImageRegistryCredential
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		name, err := reference.ParseNormalizedNamed(c.Image)
		if err != nil {
			continue
		}
		server := reference.Domain(name)
		known := func(c eci.CreateContainerGroupImageRegistryCredential) bool { return c.Server == server }
		if login := ring.For(name.Name()); len(login) > 0 && !slices.ContainsFunc(found, known) {
			found = append(found, eci.CreateContainerGroupImageRegistryCredential{Server: server, UserName: login[0].Username, Password: login[0].Password})
		}
	}
	return found, nil
}

// bodyParams are the prefixes of parameters that are long or secret. They are sent in
// the body: URLs may be logged, and have a limit.
var bodyParams = []string{"Container.", "InitContainer.", "Volume.", "ImageRegistryCredential."}

// createGroup creates the group and returns its ID. It copies the parameters to a
// request without fields, since the SDK cannot encode all of them.
func (p *Provider) createGroup(ctx context.Context, r *CreateRequest) (string, error) {
	params, err := r.Params()
	if err != nil {
		return "", err
	}
	request := eci.CreateCreateContainerGroupRequest()
	for name, value := range params {
		to := request.GetQueryParams()
		if slices.ContainsFunc(bodyParams, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			to = request.GetFormParams()
		}
		to[name] = value
	}
	response := eci.CreateCreateContainerGroupResponse()
	if err := p.client.do(ctx, request, response); err != nil {
		return "", err
	}
	return response.ContainerGroupId, nil
}

// updateImages updates the images of a group, and the credentials of their registries.
func (p *Provider) updateImages(ctx context.Context, pod *corev1.Pod, id string) error {
	request := eci.CreateUpdateContainerGroupRequest()
	request.RegionId, request.ContainerGroupId = p.cfg.Region, id
	request.ClientToken = fmt.Sprintf("%s-%s", pod.UID, pod.ResourceVersion)
	params := request.GetFormParams()
	for kind, list := range map[string][]corev1.Container{"Container": pod.Spec.Containers, "InitContainer": pod.Spec.InitContainers} {
		for i := range list {
			prefix := kind + "." + strconv.Itoa(i+1) + "."
			params[prefix+"Name"], params[prefix+"Image"] = list[i].Name, list[i].Image
		}
	}
	credentials, err := p.credentials(ctx, pod)
	if err != nil {
		return err
	}
	for i, c := range credentials {
		prefix := "ImageRegistryCredential." + strconv.Itoa(i+1) + "."
		params[prefix+"Server"], params[prefix+"UserName"], params[prefix+"Password"] = c.Server, c.UserName, c.Password
	}
	return p.client.do(ctx, request, eci.CreateUpdateContainerGroupResponse())
}

// imagesDiffer reports whether a container of the group has another image than that of
// the pod. Two names of the same image do not differ: an update would restart the
// container.
func imagesDiffer(pod *corev1.Pod, found *group) bool {
	want := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		want[c.Name] = c.Image
	}
	for _, c := range slices.Concat(found.InitContainers, found.Containers) {
		if image, ok := want[c.Name]; ok && normalizedImage(image) != normalizedImage(c.Image) {
			return true
		}
	}
	return false
}

// normalizedImage returns the name of an image with registry and tag, in case ECI
// reports it that way.
func normalizedImage(image string) string {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.TagNameOnly(name).String()
}
