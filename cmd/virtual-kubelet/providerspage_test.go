package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

var update = flag.Bool("update", false, "write docs/providers.md and the table of README.md")

// listed is a provider of providers/providers.yaml.
type listed struct {
	Name        string `json:"name"`
	Runs        string `json:"runs"`
	Takes       string `json:"takes"`
	Conformance string `json:"conformance"`
}

// docs/providers.md, and the table between the markers of README.md, are what
// providers/providers.yaml and the binary say.
func TestProvidersPage(t *testing.T) {
	text, err := os.ReadFile("../../providers/providers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []listed
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
		if _, err := os.Stat(filepath.Join("../../providers", p.Name, "README.md")); err != nil {
			t.Errorf("provider %s has no README: %v", p.Name, err)
		}
	}
	for _, name := range providerNames() {
		if !slices.Contains(names, name) {
			t.Errorf("provider %s of the binary is not in providers/providers.yaml", name)
		}
	}
	for name, entry := range providers {
		constraint := fmt.Sprintf("//go:build !chosen_providers || provider_%s\n", name)
		if source, err := os.ReadFile(name + ".go"); err != nil || !bytes.HasPrefix(source, []byte(constraint)) {
			t.Errorf("a binary cannot leave provider %s out: %s.go does not begin with %q: %v", name, name, constraint, err)
		}
		if !strings.Contains(needsTable, fmt.Sprintf("[%s](../providers/%s/README.md)", name, name)) {
			t.Errorf("needsTable does not say what provider %s is for", name)
		}
		for _, c := range nodeutil.Capabilities(entry.sample) {
			if !strings.Contains(capabilitiesTable, "| "+c+" |") {
				t.Errorf("capabilitiesTable does not explain %q, which provider %s can", c, name)
			}
		}
	}
	compareWithPage(t, "../../docs/providers.md", func(page []byte) []byte { return providersPage(list, page) })
	compareWithPage(t, "../../README.md", func(page []byte) []byte { return withProvidersTable(t, page, list) })
}

// compareWithPage compares the page in path with what wanted makes of it, which is
// written there with -update.
func compareWithPage(t *testing.T, path string, wanted func(page []byte) []byte) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := wanted(page)
	switch {
	case bytes.Equal(page, want):
	case *update:
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what providers/providers.yaml says: run this test with -update. It should be:\n%s", path, want)
	}
}

// withProvidersTable returns readme with the table between its markers replaced.
func withProvidersTable(t *testing.T, readme []byte, list []listed) []byte {
	t.Helper()
	const begin, end = "<!-- providers -->\n", "<!-- end providers -->\n"
	before, rest, ok := bytes.Cut(readme, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !ok || !ended {
		t.Fatalf("README.md lacks the lines %q and %q", begin, end)
	}
	var page bytes.Buffer
	page.Write(before)
	page.WriteString(begin + "| provider | runs pods as |\n|---|---|\n")
	for _, p := range list {
		fmt.Fprintf(&page, "| [%s](providers/%s/README.md) | %s |\n", p.Name, p.Name, p.Runs)
	}
	page.WriteString(end)
	page.Write(after)
	return page.Bytes()
}

// capabilitiesTable explains what nodeutil.Capabilities names.
const capabilitiesTable = "" +
	"| notify | `NotifyPods` | statuses are polled |\n" +
	"| pods-by-uid | `GetPodByUID`, `GetPodStatusByUID` | pods are found by name, as [architecture.md](architecture.md#what-always-holds-pods) says under Identity |\n" +
	"| node-status | `Ping`, `NotifyNodeStatus` | the node counts as healthy, and its status does not change |\n" +
	"| logs | `GetContainerLogs` | `kubectl logs` fails (501), and so on below |\n" +
	"| exec | `RunInContainer` | `kubectl exec` |\n" +
	"| attach | `AttachToContainer` | `kubectl attach` |\n" +
	"| port-forward | `PortForward` | `kubectl port-forward` |\n" +
	"| stats | `GetStatsSummary` | `kubectl top`, unless the provider has metrics |\n" +
	"| metrics | `GetMetricsResource` | made from the stats |\n"

// needsTable says which provider is for what.
const needsTable = "" +
	"| batch jobs on an HPC cluster | [slurm](../providers/slurm/README.md); [interlink](../providers/interlink/README.md) where the site has a plugin of interLink, as for HTCondor | slurm works as one user, here or by ssh; the site needs bash, files that its machines share and, for images, a runtime | Slurm 22.05, with processes and Podman (not Apptainer, Singularity, Enroot); interlink on a fake of its API server |\n" +
	"| batch jobs on rented machines, above all with GPUs | [azurebatch](../providers/azurebatch/README.md) | Jobs only: pods with restartPolicy Always are refused | a fake |\n" +
	"| burst to a cloud, with no machines to keep | by the account that you have: [aci](../providers/aci/README.md) (Azure), [eci](../providers/eci/README.md) (Alibaba Cloud), [fargate](../providers/fargate/README.md) (AWS), [huaweicci](../providers/huaweicci/README.md) (Huawei Cloud), [zun](../providers/zun/README.md) (OpenStack) | each runs part of what a pod can ask for: [the table](#what-of-a-pod-they-run) | fakes; huaweicci on a gateway before a real API server |\n" +
	"| burst to another cluster of yours | [kubernetes](../providers/kubernetes/README.md) | nothing to install there; the networks of the clusters are yours to join | real control planes |\n" +
	"| pods beside jobs of Nomad | [nomad](../providers/nomad/README.md) | no probes or hooks | Nomad 1.6.3 with Docker 20.10 |\n" +
	"| isolation: a virtual machine for each pod | [machine](../providers/machine/README.md), by qemu, Amazon EC2 or a command of yours | a pod waits until its machine has started, unless machines are in reserve (`warm`) | network namespaces in place of machines; emulated machines of qemu; a fake of EC2 |\n" +
	"| a machine with a container runtime, without a kubelet | [cri](../providers/cri/README.md) | pods as on a kubelet; one node for each process | containerd 1.6, with [the node specs of Kubernetes' own suite](conformance.md) |\n" +
	"| a machine without a container runtime | [process](../providers/process/README.md) | pods have the machine's network, and images are not pulled | Linux, with most of the same specs |\n" +
	"| edge: a machine that shall have no credentials of the cluster, and that the API server does not reach | [remote](../providers/remote/README.md): `virtual-kubelet serve-provider` with `cri` or `process` there, the virtual kubelet beside the cluster | the virtual kubelet has to reach the machine, over mutual TLS; while it does not, the node is not ready | both processes on one machine |\n" +
	"| tests of controllers, schedulers and autoscalers; load | [mock](../providers/mock/README.md) | nothing runs | the tests and [benchmarks](performance.md) of this repository |\n" +
	"| a backend of your own | [choose.md](choose.md); in another language, or updated by itself: [remote](../providers/remote/README.md). [stackpath](../providers/stackpath/README.md), whose service has ended, is the smallest to read | | providers in Python and TypeScript |\n"

// providersPage returns what docs/providers.md should be that is before.
func providersPage(list []listed, before []byte) []byte {
	var page bytes.Buffer
	page.WriteString(`# Providers

Those of this repository; ` + "`virtual-kubelet providers`" + ` lists what a binary has. This page is
made of [providers/providers.yaml](../providers/providers.yaml).

## Which one for what

| you need | take | know | it was run on |
|---|---|---|---|
` + needsTable + `
No provider of a cloud has been run in a real account. Its README says what its fake was written after, what
is not checked, and which test to run in an account of yours.

## What they do

| provider | runs | takes | can | passes of the conformance kit | lines |
|---|---|---|---|---|---|
`)
	for _, p := range list {
		can := "not in this binary"
		if entry, ok := providers[p.Name]; ok {
			can = strings.Join(nodeutil.Capabilities(entry.sample), ", ")
		}
		fmt.Fprintf(&page, "| [%s](../providers/%s/README.md) | %s | %s | %s | %s | %s |\n", p.Name, p.Name, p.Runs, p.Takes, can, p.Conformance, linesOf(p.Name, before))
	}
	page.WriteString(`
The lines are those of its code without blanks and comments, and those of the fake, give or
take a hundred.

A provider takes whole pods, or containers, of which the [pod engine](podengine.md) makes pods.
It can do what it has the methods for (` + "[`nodeutil.Provider`](../node/nodeutil/provider.go)" + `):

| can | methods | without |
|---|---|---|
` + capabilitiesTable + `
The capabilities of the conformance kit are in [providertest.md](providertest.md).

## What of a pod they run

Of those that hand a whole pod to a service (a test compares the table with what the providers
say). A pod that needs more is refused before anything is created, in one event; what is done
in part is named in an event, too. Files are those of ConfigMaps, Secrets, the downward API and
projected volumes. Each README says more.

` + fieldsTable(list) + `
The others take all of this, each with the exceptions that its README names.

## What they ask of their service

The calls that 1000 pods take, and their kilobytes with headers, sent and received: to create
them, in a minute in which nothing happens, and to delete them. They were counted over a fake
of the service by the tests of the provider, which fail where it is half as many more; for
kubernetes on a real control plane, of 20 pods with tokens, times fifty but at rest, with what
its watches receive, and TLS. Where there are no bytes no fake speaks HTTP over a connection. ` + "`make calls`" + ` counts again.

| provider | create | KB | a minute at rest | KB | delete | KB |
|---|---|---|---|---|---|---|
` + callsTable(list) + `
## A binary with some of them

` + "`make build PROVIDERS=\"cri zun\"`" + ` builds a binary with those providers alone: the build tag
` + "`chosen_providers`" + ` leaves all out, and ` + "`provider_NAME`" + ` takes one in
(` + "`go build -tags chosen_providers,provider_cri,provider_zun`" + `). What that saves, measured
with Go 1.26 for linux/amd64 (the last two columns are those of ` + "`virtual-kubelet version`" + `: what
each start costs before it does anything):

| providers | binary | CPU | memory |
|---|---|---|---|
| all | 64.3 MB | 30 ms | 49 MB |
| without aci, azurebatch, fargate and machine, which link SDKs of clouds | 56.9 MB | 22 ms | 41 MB |
| cri, kubernetes, mock and process | 53.6 MB | 23 ms | 39 MB |
| mock | 46.4 MB | 21 ms | 36 MB |
`)
	return page.Bytes()
}

// callsTable has a row for each provider whose tests count calls.
func callsTable(list []listed) string {
	var table strings.Builder
	for _, p := range list {
		text, err := os.ReadFile(filepath.Join("../../providers", p.Name, grouptest.CallsFile))
		var calls grouptest.Calls
		if err != nil || json.Unmarshal(text, &calls) != nil {
			continue
		}
		kilobytes := func(sent, received int) string {
			if calls.Sent == (grouptest.Bytes{}) {
				return ""
			}
			return fmt.Sprintf("%d, %d", (sent+500)/1000, (received+500)/1000)
		}
		fmt.Fprintf(&table, "| [%s](../providers/%s/README.md) | %d | %s | %d | %s | %d | %s |\n", p.Name, p.Name,
			calls.Create, kilobytes(calls.Sent.Create, calls.Received.Create), calls.Minute, kilobytes(calls.Sent.Minute, calls.Received.Minute),
			calls.Delete, kilobytes(calls.Sent.Delete, calls.Received.Delete))
	}
	return table.String()
}

// linesOf returns how many lines of code a provider and its fake have, as the page has it,
// or to the next hundred where the page is a hundred off: else every change would change it.
func linesOf(provider string, page []byte) string {
	mapping, fake := 0, 0
	_ = filepath.WalkDir(filepath.Join("../../providers", provider), func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(path)
		switch {
		case err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go"):
		case strings.HasSuffix(filepath.Dir(name), "test"):
			fake += linesIn(path)
		default:
			mapping += linesIn(path)
		}
		return err
	})
	counts := []int{mapping, fake}[:min(2, 1+fake)]
	shown := make([]string, len(counts))
	row := regexp.MustCompile(`(?m)^\| \[` + provider + `\]\(.*\| (\d+)(?: / (\d+))? \|$`).FindSubmatch(page)
	for i, n := range counts {
		number := 0
		if row != nil {
			number, _ = strconv.Atoi(string(row[i+1]))
		}
		if max(n, number)-min(n, number) > 100 {
			number = (n + 99) / 100 * 100
		}
		shown[i] = strconv.Itoa(number)
	}
	return strings.Join(shown, " / ")
}

func linesIn(path string) (n int) {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// fieldsTable has a column for each provider whose tests have found what it runs.
func fieldsTable(list []listed) string {
	header, rule, rows := "| |", "|---|", make([]string, len(fieldGroups))
	for _, p := range list {
		text, err := os.ReadFile(filepath.Join("../../providers", p.Name, fieldsFile))
		var found map[string]string
		if err != nil || json.Unmarshal(text, &found) != nil {
			continue
		}
		header, rule = header+" "+p.Name+" |", rule+"---|"
		for i, group := range fieldGroups {
			rows[i] += " " + found[group.name] + " |"
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%s\n%s\n", header, rule)
	for i, group := range fieldGroups {
		fmt.Fprintf(&table, "| %s |%s\n", group.name, rows[i])
	}
	return table.String()
}
