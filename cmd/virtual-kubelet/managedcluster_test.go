package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The module test/cloudproviders has these nodes before the cloud provider of AWS; with -update they are
// written.
func TestNodesOfManagedClusters(t *testing.T) {
	for _, cluster := range append(managedClusterNames(), "none") {
		t.Run(cluster, func(t *testing.T) {
			content, err := yaml.Marshal(nodeIn(cluster, "edge.example.com"))
			if err != nil {
				t.Fatal(err)
			}
			path := "testdata/managed-clusters/" + cluster + ".yaml"
			if *update {
				if err := os.WriteFile(path, content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || string(want) != string(content) {
				t.Errorf("%v: %s has\n%s\nand not\n%s", err, path, want, content)
			}
		})
	}
}

func nodeIn(cluster, name string) *corev1.Node {
	o := options{provider: "mock", disableTaint: true, nodeName: name, os: "linux"}
	if cluster != "none" {
		o.managedCluster = cluster
	}
	n := (&virtualNode{options: &o, address: "192.0.2.1"}).nodeSpec()
	n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	return &n
}

// The cluster autoscaler ends its whole round at a provider ID that it cannot read: GceRefFromProviderId splits
// what follows gce:// into three parts, validAwsRefIdRegex is this, and on Azure all without azure:// is skipped.
// The cloud provider of GCE must not read it: it would ask for the instance.
func TestProviderIDsOfManagedClusters(t *testing.T) {
	for _, name := range []string{"vk", "edge-1.example.com", "i-0123456789abcdef0", "fargate-10-0-0-1"} {
		if id := nodeIn("eks", name).Spec.ProviderID; !regexp.MustCompile(`^aws\:\/\/\/[-0-9a-z]*\/[-0-9a-z]*$`).MatchString(id) {
			t.Errorf("the cluster autoscaler cannot read %s", id)
		} else if last := id[strings.LastIndex(id, "/")+1:]; strings.HasPrefix(last, "i-") || strings.HasPrefix(last, "fargate-") {
			t.Errorf("the cloud provider takes %s for an instance", id)
		}
		id := nodeIn("gke", name).Spec.ProviderID
		if rest, ok := strings.CutPrefix(id, "gce://"); !ok || len(strings.Split(rest, "/")) != 3 {
			t.Errorf("the cluster autoscaler cannot read %s", id)
		}
		if regexp.MustCompile(`^gce://([^/]+)/([^/]+)/([^/]+)$`).MatchString(id) {
			t.Errorf("the cloud provider takes %s for an instance", id)
		}
		if id := nodeIn("aks", name).Spec.ProviderID; strings.HasPrefix(id, "azure://") {
			t.Errorf("the cloud provider takes %s for an instance", id)
		}
	}
}
