package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	o := optionsOf(t, deployment.Spec.Template.Spec.Containers[0].Args)
	if o.shards == 0 || o.electNamespace != deployment.Namespace {
		t.Errorf("there are %d shards, with leases in namespace %s, want that of the Deployment, %s", o.shards, o.electNamespace, deployment.Namespace)
	}
}

// The example of a provider beside the virtual kubelet is one that both take, and the two meet
// at the same socket, as the same user.
func TestRemoteDeploymentIsValid(t *testing.T) {
	text, err := os.ReadFile("../../deploy/remote-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	var config corev1.ConfigMap
	var deployment appsv1.Deployment
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &config), yaml.UnmarshalStrict([]byte(second), &deployment)); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	ours, provider := pod.Containers[0], pod.InitContainers[0]
	o := optionsOf(t, ours.Args)
	if err := providers[o.provider].check([]byte(config.Data["provider.yaml"])); err != nil {
		t.Error(err)
	}
	address := strings.TrimSpace(strings.TrimPrefix(config.Data["provider.yaml"], "address: "))
	if !slices.Contains(provider.Args, address) || !slices.Contains(provider.Args, o.nodeName) || ours.Args[0] != "--nodename="+o.nodeName {
		t.Errorf("the provider has the arguments %q, want the address %s and the node %s", provider.Args, address, o.nodeName)
	}
	inSocket := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "socket" && strings.HasPrefix(address, "unix://"+m.MountPath+"/") && !m.ReadOnly
		})
	}
	if !inSocket(ours) || !inSocket(provider) || pod.SecurityContext.RunAsUser == nil {
		t.Error("they do not meet at the socket")
	}
	if ours.SecurityContext.RunAsUser != nil || provider.SecurityContext.RunAsUser != nil {
		t.Error("they are different users")
	}
	onlyOursHasToken(t, pod)
}

// What init writes for a provider that is served keeps the token from it, too.
func TestInitOfRemoteKeepsTokenFromProvider(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	if status, _, stderr := execute(t, "init", "own", "--kind", "remote", "--directory", dir, "--replace", "../.."); status != 0 {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "deploy/node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, second, _ := strings.Cut(string(text), "\n---\n")
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(second), &deployment); err != nil {
		t.Fatal(err)
	}
	onlyOursHasToken(t, deployment.Spec.Template.Spec)
}

// onlyOursHasToken reports it if a container of the pod beside virtual-kubelet, in which a provider
// may run the pods of anybody, has the token of the service account.
func onlyOursHasToken(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("every container has the token of the service account")
	}
	var have []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
			if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
				have = append(have, c.Name+" in "+m.MountPath)
			}
		}
	}
	if want := []string{"virtual-kubelet in /var/run/secrets/kubernetes.io/serviceaccount"}; !slices.Equal(have, want) {
		t.Errorf("there are tokens for %q, want %q", have, want)
	}
}

// No process of a manifest sees the services of its namespace, of which one named kubelet would set
// $KUBELET_PORT to tcp://…, with which it does not start.
func TestDeploymentsSeeNoServices(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*deployment.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	dir := filepath.Join(t.TempDir(), "own")
	if status, _, stderr := execute(t, "init", "own", "--kind", "remote", "--directory", dir, "--replace", "../.."); status != 0 {
		t.Fatal(stderr)
	}
	for _, file := range append(files, filepath.Join(dir, "deploy/node.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		deployments := 0
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var d appsv1.Deployment
			if err := yaml.Unmarshal([]byte(document), &d); err != nil {
				t.Fatal(err)
			}
			if d.Kind != "Deployment" {
				continue
			}
			deployments++
			if links := d.Spec.Template.Spec.EnableServiceLinks; links == nil || *links {
				t.Errorf("%s: the process has the variables of services", file)
			}
		}
		if deployments != 1 {
			t.Errorf("%s has %d Deployments", file, deployments)
		}
	}
}

// optionsOf returns the options that arguments set.
func optionsOf(t *testing.T, args []string) options {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags, func(string) string { return "" })
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.completeAll(); err != nil { // the provider's configuration is not here
		t.Fatal(err)
	}
	return o
}
