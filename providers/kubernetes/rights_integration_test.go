//go:build integration

package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:kube-system:virtual-kubelet"]
- level: None
`

// audit is the audit log of the node's requests to an API server.
type audit struct{ path string }

// startAudited starts a cluster with an audit log.
func startAudited(t *testing.T) (*cluster, audit) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return startCluster(t, "--audit-policy-file="+policy, "--audit-log-path="+log), audit{log}
}

func (a audit) requests(t *testing.T) (requests []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(a.path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var request auditv1.Event
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatalf("%v in the audit log: %s", err, line)
		}
		if request.ObjectRef != nil {
			requests = append(requests, request)
		}
	}
	return requests
}

// right is a verb on a resource.
type right struct{ group, resource, verb string }

// usedBy reports whether a request needed the right, which may not be that of its own
// verb: an apply that creates the object needs create, and so does a stream over
// WebSocket, which is a GET.
func (r right) usedBy(request *auditv1.Event) bool {
	of := request.ObjectRef
	name := of.Resource
	if of.Subresource != "" {
		name += "/" + of.Subresource
	}
	if r.group != of.APIGroup || r.resource != name || request.ResponseStatus == nil {
		return false
	}
	return r.verb == request.Verb ||
		r.verb == "create" && request.Verb == "patch" && request.ResponseStatus.Code == http.StatusCreated ||
		r.verb == "create" && request.Verb == "get" && request.ResponseStatus.Code == http.StatusSwitchingProtocols
}

// rightsOf returns the rights in a file of deploy, all of them unused. Informers use
// watch-list, and list only what API servers before Kubernetes 1.34 serve: listed are
// the resources of which that is so.
func rightsOf(t *testing.T, file string, listed ...string) map[right]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	rights := map[right]bool{}
	for _, document := range strings.Split(string(text), "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, name := range rule.Resources {
				for _, verb := range rule.Verbs {
					if verb != "list" || !slices.Contains(listed, name) {
						rights[right{rule.APIGroups[0], name, verb}] = false
					}
				}
			}
		}
	}
	if len(rights) == 0 {
		t.Fatalf("%s has no rights", file)
	}
	return rights
}

// wantUsed waits until all rights have been used.
func (a audit) wantUsed(t *testing.T, rights map[right]bool) {
	t.Helper()
	eventually(t, "all rights are used", func(context.Context) error {
		for _, request := range a.requests(t) {
			for r := range rights {
				rights[r] = rights[r] || r.usedBy(&request)
			}
		}
		var unused []string
		for r, used := range rights {
			if !used {
				unused = append(unused, fmt.Sprintf("%s %s %s", r.verb, r.group, r.resource))
			}
		}
		slices.Sort(unused)
		if len(unused) > 0 {
			return fmt.Errorf("the rights to %q are not used", unused)
		}
		return nil
	})
}

// testCommands runs what kubectl can do with a pod. The remote namespace has default
// limits, which stay.
func (w *world) testCommands(t *testing.T) {
	namespace := w.at(t, "commands").Namespace
	w.remote.applyText(`
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: ` + namespace + `}
spec: {limits: [{type: Container, default: {memory: 64Mi}}]}
`)
	pod := w.pod(t, "commands", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	})
	w.waitRunning(t, pod)
	far := func(ctx context.Context) *corev1.Pod {
		now, err := w.remotePod(ctx, pod.UID)
		if err != nil {
			return &corev1.Pod{}
		}
		return now
	}
	w.kubectl(t, "label", "pod", "commands", "color=blue")
	eventually(t, "the remote pod has the label", func(ctx context.Context) error {
		if now := far(ctx); now.Labels["color"] != "blue" {
			return fmt.Errorf("%v", now.Labels)
		}
		return nil
	})
	if !w.isService {
		w.testChanges(t, far)
	}
	if limits := far(t.Context()).Spec.Containers[0].Resources.Limits; limits.Memory().String() != "64Mi" {
		t.Errorf("the remote namespace's limits are %v", limits)
	}
	attach := w.home.Kubectl(t.Context(), "attach", "commands", "-c", "main", "-i")
	attach.Stdin = strings.NewReader("hello\n")
	if out, err := attach.CombinedOutput(); err != nil {
		t.Errorf("kubectl attach: %v: %s", err, out)
	}
	w.forward(t, "commands")
	if events, err := w.events(t.Context(), pod); err != nil || strings.Contains(events, "ProviderUpdateFailed") {
		t.Errorf("an update failed: %s %v", events, err)
	}
	w.delete(t, pod)
	if err := w.remote.client.CoreV1().LimitRanges(namespace).Delete(t.Context(), "defaults", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testChanges changes the resources of pod commands, and adds a container to it.
func (w *world) testChanges(t *testing.T, far func(context.Context) *corev1.Pod) {
	w.kubectl(t, "patch", "pod", "commands", "--subresource=resize", "--patch", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}`)
	eventually(t, "the remote pod is resized", func(ctx context.Context) error {
		if now := far(ctx); len(now.Spec.Containers) == 0 || now.Spec.Containers[0].Resources.Requests.Cpu().String() != "200m" {
			return fmt.Errorf("%+v", now.Spec.Containers)
		}
		return nil
	})
	w.kubectl(t, "debug", "commands", "--image=example.com/debug:1", "--container=look")
	eventually(t, "the remote pod has the ephemeral container", func(ctx context.Context) error {
		if now := far(ctx); len(now.Spec.EphemeralContainers) != 1 {
			return fmt.Errorf("%+v", now.Spec.EphemeralContainers)
		}
		return nil
	})
}

func (w *world) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := w.home.Kubectl(t.Context(), args...).CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// forward connects to a port of a pod through the API servers.
func (w *world) forward(t *testing.T, pod string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	command := w.home.Kubectl(ctx, "port-forward", "pod/"+pod, ":80")
	var out lockedbuffer.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = command.Wait() // it was killed
	}()
	eventually(t, "the port answers", func(ctx context.Context) error {
		found := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`).FindStringSubmatch(out.String())
		if found == nil {
			return fmt.Errorf("kubectl has printed %q", out.String())
		}
		connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", found[1])
		if err != nil {
			return err
		}
		defer connection.Close()
		_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(connection, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		if n, err := connection.Read(make([]byte, 1)); n == 0 {
			return fmt.Errorf("no response: %w", err)
		}
		return nil
	})
}

// testQuota uses one remote namespace with a quota, and requests statistics although
// the remote cluster has no metrics API.
func (w *world) testQuota(t *testing.T) {
	w.remote.applyText(`
apiVersion: v1
kind: Namespace
metadata: {name: guests}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: all, namespace: guests}
spec: {hard: {pods: "42"}}
`)
	capacity := func(pods int64) {
		t.Helper()
		eventually(t, "the node has what the quota allows", func(ctx context.Context) error {
			n, err := w.home.client.CoreV1().Nodes().Get(ctx, homeNode, metav1.GetOptions{})
			if err == nil && n.Status.Allocatable.Pods().Value() != pods {
				err = fmt.Errorf("it has %v", n.Status.Allocatable)
			}
			return err
		})
	}
	capacity(42)
	w.remote.applyText(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: all, namespace: guests}
spec: {hard: {pods: "43"}}
`)
	capacity(43)

	// A pod beyond the quota gets an event, and runs once there is room. The node does
	// not know about a quota by count: otherwise it would have refused the pod itself.
	quota := func(pods string) {
		t.Helper()
		w.remote.applyText(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: few, namespace: guests}, spec: {hard: {count/pods: "` + pods + `"}}}`)
	}
	quota("1")
	first := w.waitRunning(t, w.pod(t, "within", nil))
	eventually(t, "the quota is used up", func(ctx context.Context) error {
		q, err := w.remote.client.CoreV1().ResourceQuotas("guests").Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		hard, used := q.Status.Hard["count/pods"], q.Status.Used["count/pods"]
		if hard.Value() != 1 || used.Value() != 1 {
			err = fmt.Errorf("it is %+v", q.Status)
		}
		return err
	})
	second := w.pod(t, "beyond", nil)
	w.waitEvent(t, second, "exceeded quota")
	quota("43")
	w.waitRunning(t, second)
	w.delete(t, first)
	w.delete(t, second)
	if out, err := w.home.Kubectl(t.Context(), "get", "--raw", "/api/v1/nodes/"+homeNode+"/proxy/stats/summary").CombinedOutput(); err == nil {
		t.Errorf("there are statistics without a metrics API: %s", out)
	}
}
