package main

import (
	"os"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The example of several processes is one that Kubernetes and the binary take.
func TestDeploymentIsValid(t *testing.T) {
	text, err := os.ReadFile("../../deploy/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Fatal(err)
	}
	var o options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags, func(string) string { return "" })
	if err := flags.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	if o.shards == 0 || o.electNamespace != deployment.Namespace {
		t.Errorf("there are %d shards, with leases in namespace %s, want that of the Deployment, %s", o.shards, o.electNamespace, deployment.Namespace)
	}
}
