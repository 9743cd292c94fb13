package volume

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

func claimRig(t *testing.T, pv string) *rig {
	t.Helper()
	r := newRig(t)
	r.objects.claims["claim"] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "ns", UID: "claim-1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	r.objects.volumes["pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: *decode[corev1.PersistentVolumeSpec](t, pv)}
	r.objects.volumes["pv"].Spec.ClaimRef = &corev1.ObjectReference{UID: "claim-1"}
	return r
}

// ofNode is the affinity of a volume of one node.
func ofNode(hostname string) string {
	return "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [" + hostname + "]}]}]}}"
}

// labelled gives the node labels.
func labelled(labels map[string]string) func(*rig) {
	return func(r *rig) {
		r.opts.NodeLabels = func(context.Context) (map[string]string, error) { return labels, nil }
	}
}

const claimVolume = `[{name: v, persistentVolumeClaim: {claimName: claim}}]`

func TestClaims(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "file"), "x")
	for name, tc := range map[string]struct {
		pv, err   string
		change    func(*rig)
		permanent bool
	}{
		"hostPath":         {pv: "hostPath: {path: " + dir + ", type: Directory}"},
		"local":            {pv: "local: {path: " + dir + "}"},
		"hostPath, wrong":  {pv: "hostPath: {path: " + dir + ", type: File}", err: "is not a file"},
		"local, missing":   {pv: "local: {path: " + dir + "/none}", err: "local volume: "},
		"local, no dir":    {pv: "local: {path: " + dir + "/file}", err: "kind persistentVolumeClaim (local, not a directory)", permanent: true},
		"csi":              {pv: "csi: {driver: x, volumeHandle: h}", err: "ProviderNotSupported: volume v of kind persistentVolumeClaim (csi)", permanent: true},
		"nothing":          {pv: "{}", err: "kind persistentVolumeClaim (unknown)", permanent: true},
		"block":            {pv: "{volumeMode: Block, local: {path: /dev/null}}", err: "kind persistentVolumeClaim (block device)", permanent: true},
		"no claim":         {pv: "{}", err: `persistentvolumeclaim "claim" not found`, change: func(r *rig) { delete(r.objects.claims, "claim") }},
		"no volume":        {pv: "{}", err: `failed to read persistentvolume "pv"`, change: func(r *rig) { delete(r.objects.volumes, "pv") }},
		"no answer":        {pv: "{}", err: `failed to read persistentvolumeclaim "ns/claim": away`, change: func(r *rig) { r.objects.err = errors.New("away") }},
		"not bound":        {pv: "{}", err: "is not bound yet", change: func(r *rig) { r.objects.claims["claim"].Status.Phase = corev1.ClaimPending }},
		"being deleted":    {pv: "{}", err: "is being deleted", change: func(r *rig) { r.objects.claims["claim"].DeletionTimestamp = &metav1.Time{} }},
		"another's volume": {pv: "{}", err: "is bound to another claim", change: func(r *rig) { r.objects.volumes["pv"].Spec.ClaimRef.UID = "other" }},
		"denied": {pv: "local: {path: " + dir + "}", err: "is not allowed: no", permanent: true, change: func(r *rig) {
			r.opts.AllowHostPath = func(a HostAccess) error {
				if a.PersistentVolume != "pv" {
					return nil
				}
				return errors.New("no")
			}
		}},
		"of this node": {pv: "{local: {path: " + dir + "}, " + ofNode("here") + "}", change: labelled(map[string]string{corev1.LabelHostname: "here"})},
		"of another node": {pv: "{local: {path: " + dir + "}, " + ofNode("there") + "}", change: labelled(map[string]string{corev1.LabelHostname: "here"}),
			err: `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"hostPath of another node": {pv: "{hostPath: {path: " + dir + "}, " + ofNode("there") + "}", change: labelled(nil), err: "no matching NodeSelectorTerms"},
		"of a node that cannot be read": {pv: "{local: {path: " + dir + "}, " + ofNode("there") + "}", err: `failed for volume "pv" : error retrieving node: away`, change: func(r *rig) {
			r.opts.NodeLabels = func(context.Context) (map[string]string, error) {
				return nil, errdefs.NotFound("away")
			}
		}},
		"of any node, which cannot be read": {pv: "local: {path: " + dir + "}", change: func(r *rig) {
			r.opts.NodeLabels = func(context.Context) (map[string]string, error) { return nil, errors.New("away") }
		}},
		"unsupported": {pv: "{}", err: "volume v of kind persistentVolumeClaim", permanent: true, change: func(r *rig) { r.opts.Claims = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r := claimRig(t, tc.pv)
			if tc.change != nil {
				tc.change(r)
			}
			pod := podWith(t, claimVolume)
			err := r.Prepare(t.Context(), pod)
			expectError(t, err, tc.err)
			expect(t, "permanence", errdefs.IsPermanent(err), tc.permanent)
			expect(t, "class NotFound", errdefs.IsNotFound(err), false)
			if tc.err == "" {
				expect(t, "the path", r.path(t, pod, "v"), dir)
			} else {
				_, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "v"})
				expectError(t, err, "Prepare comes first")
			}
		})
	}
}

func TestClaimsAreReadOnlyIfTheySaySo(t *testing.T) {
	r := claimRig(t, "local: {path: "+tempDir(t)+"}")
	pod := podWith(t, `[{name: v, persistentVolumeClaim: {claimName: claim, readOnly: true}}]`)
	r.prepare(t, pod)
	_, readOnly, err := r.HostPath(pod, &corev1.VolumeMount{Name: "v"})
	expectError(t, err, "")
	expect(t, "readOnly", readOnly, true)
}

// What is the host's own keeps its SELinux label, as with a kubelet.
func TestRelabel(t *testing.T) {
	dir := tempDir(t)
	for name, tc := range map[string]struct {
		volume, pv string
		want       bool
	}{
		"emptyDir":                      {volume: "emptyDir: {}", want: true},
		"contents":                      {volume: "downwardAPI: {}", want: true},
		"hostPath":                      {volume: "hostPath: {path: " + dir + "}"},
		"claim of a hostPath":           {volume: "persistentVolumeClaim: {claimName: claim}", pv: "hostPath: {path: " + dir + "}"},
		"claim of a local volume":       {volume: "persistentVolumeClaim: {claimName: claim}", pv: "local: {path: " + dir + "}", want: true},
		"claim of one, only to be read": {volume: "persistentVolumeClaim: {claimName: claim, readOnly: true}", pv: "local: {path: " + dir + "}"},
		"unsupported":                   {volume: "nfs: {server: s, path: /}"},
	} {
		t.Run(name, func(t *testing.T) {
			r := claimRig(t, tc.pv)
			pod := podWith(t, "[{name: v, "+tc.volume+"}]")
			_ = r.Prepare(t.Context(), pod)
			expect(t, "relabel", r.Relabel(pod, &corev1.VolumeMount{Name: "v"}), tc.want)
			expect(t, "relabel of no volume", r.Relabel(pod, &corev1.VolumeMount{Name: "none"}), false)
		})
	}
}

func TestClient(t *testing.T) {
	api := fake.NewClientset(
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "ns"}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}},
	)
	fakeapi.React(&api.Fake, "create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		expect(t, "the subresource", action.GetSubresource(), "token")
		expect(t, "the namespace", action.GetNamespace(), "ns")
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		request.Status.Token = "token of " + request.Spec.BoundObjectRef.Name
		return true, request, nil
	})
	c := Client{api}
	if _, err := c.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil {
		t.Error(err)
	}
	if _, err := c.PersistentVolume(t.Context(), "pv"); err != nil {
		t.Error(err)
	}
	token, err := NewTokens(c).Token(t.Context(), tokenPod(), "", nil)
	expectError(t, err, "")
	expect(t, "the token", token.Value, "token of pod")
}
