package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What is printed of the rights that are left is about an account that is named, and the command
// deletes none: programs may run as it, and one in kube-system may be of other nodes.
func TestDeregisterLeavesAccounts(t *testing.T) {
	for _, c := range []struct {
		account string
		args    []string
		says    string
		prints  string
	}{
		{"", []string{"--nodename=n1"}, "", ""},
		{"", []string{"--nodename=n1", "--bootstrap-kubeconfig=x", "--cert-dir=y"}, "--nodename n1 --provider mock --node-identity | kubectl delete --ignore-not-found -f -", "name: system:node:n1\n"},
		{"apps/vk", []string{"--nodename=n1"}, "--nodename n1 --provider mock --service-account apps/vk --roles-only | kubectl delete --ignore-not-found -f -", "kind: ClusterRole\nmetadata:\n  name: apps:vk-n1\n"},
	} {
		noCluster(t)
		o := deregisterOptions{options: &options{}, account: c.account}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags, func(string) string { return "" })
		if err := flags.Parse(append(c.args, "--provider=mock")); err != nil {
			t.Fatal(err)
		}
		command := o.rightsLeft()
		if !strings.HasSuffix(command, c.says) || (command == "") != (c.says == "") {
			t.Errorf("%q of %q: %q, want %q", c.args, c.account, command, c.says)
		}
		if command == "" {
			continue
		}
		command, _, _ = strings.Cut(command, " |")
		status, stdout, stderr := execute(t, strings.Fields(command)[1:]...)
		if status != 0 || strings.Contains(stdout, "kind: ServiceAccount\nmetadata") || !strings.Contains(stdout, c.prints) {
			t.Errorf("%s: exit status %d, %s\n%s", command, status, stderr, stdout)
		}
	}
}
