package huaweicci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// annotationFlavor is what a namespace of CCI 1 must have.
const annotationFlavor = "namespace.kubernetes.io/flavor"

// prepareNamespace makes sure that the namespace exists, and has a network if the
// configuration has one: without, its pods stay pending.
func (c *Config) prepareNamespace(ctx context.Context, client clientset.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierror.IsNotFound(err) {
		err = c.createNamespace(ctx, client, name)
	}
	if err != nil || c.Network == nil {
		return err
	}
	return c.ensureNetwork(ctx, client, name)
}

func (c *Config) createNamespace(ctx context.Context, client clientset.Interface, name string) error {
	if c.Network == nil {
		return errors.New("it does not exist in CCI: create it with its network, or set Network")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if c.API == APIv1 {
		namespace.Annotations = map[string]string{annotationFlavor: c.InstanceType}
	}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create it: %w", err)
	}
	log.G(ctx).WithField("namespace", name).Info("Created the namespace in CCI")
	return nil
}

// ensureNetwork creates the network of a namespace, unless there is one: a namespace is bound
// to a network once.
func (c *Config) ensureNetwork(ctx context.Context, client clientset.Interface, namespace string) error {
	version, object := c.network()
	rest, path := client.CoreV1().RESTClient(), "/apis/"+version+"/namespaces/"+namespace+"/networks"
	data, err := rest.Get().AbsPath(path).SetHeader("Accept", contentJSON).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("list its networks: %w", err)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("list its networks: %w", err)
	}
	if len(list.Items) > 0 {
		return nil
	}
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode its network: %w", err)
	}
	_, err = rest.Post().AbsPath(path).SetHeader("Content-Type", contentJSON).Body(body).DoRaw(ctx)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create its network: %w", err)
	}
	log.G(ctx).WithField("namespace", namespace).WithField("network", c.Network.Name).Info("Created the network of the namespace")
	return nil
}

// network returns the API version of networks, and the one of the configuration.
func (c *Config) network() (version string, object map[string]any) {
	n, kind := c.Network, "underlay_neutron"
	annotations, spec := map[string]string{}, map[string]any{"networkType": kind}
	if c.API == APIv1 {
		version = "networking.cci.io/v1beta1"
		const prefix = "network.alpha.kubernetes.io/"
		annotations[prefix+"default-security-group"], annotations[prefix+"domain-id"], annotations[prefix+"project-id"] = n.SecurityGroup, n.DomainID, c.ProjectID
		spec["attachedVPC"], spec["networkID"], spec["subnetID"], spec["cidr"] = n.VPC, n.NetworkID, n.SubnetID, n.CIDR
		if n.Zone != "" {
			spec["availableZone"] = n.Zone
		}
	} else {
		version = "yangtse/v2"
		annotations["yangtse.io/domain-id"], annotations["yangtse.io/project-id"] = n.DomainID, c.ProjectID
		spec["securityGroups"], spec["subnets"] = []string{n.SecurityGroup}, []map[string]string{{"subnetID": n.SubnetID}}
	}
	return version, map[string]any{
		"apiVersion": version, "kind": "Network",
		"metadata": map[string]any{"name": n.Name, "annotations": annotations}, "spec": spec,
	}
}
