package claims

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // they sleep, in the bubble of the first test
	os.Exit(m.Run())
}

// rig is Claims between two clusters. The home storage classes are "remote", of this
// provisioner, and "disk", of another one.
type rig struct {
	*Claims
	t            *testing.T
	home, remote *fake.Clientset
	mu           sync.Mutex
	recorded     []string
}

func newRig(t *testing.T, atHome ...runtime.Object) *rig {
	g := &rig{t: t, remote: fake.NewClientset()}
	g.home = fake.NewClientset(append(atHome, class("remote", Provisioner), class("disk", "disk.example.com"))...)
	g.Claims = New(Options{
		Translate:       &translate.Options{Home: translate.Home{Cluster: "home", Node: "far", UID: "home-uid"}, Namespaces: translate.Namespaces{Mapping: translate.Prefixed, Prefix: "home-"}},
		Classes:         map[string]string{"remote": "fast", "disk": "fast"},
		Home:            g.home,
		Remote:          g.remote,
		EnsureNamespace: func(context.Context, string) error { return nil },
		RecordEvent: func(_ *corev1.PersistentVolumeClaim, kind, reason, message string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.recorded = append(g.recorded, kind+" "+reason+" "+message)
		},
	})
	return g
}

// run runs the Claims for the rest of the test.
func (g *rig) run() {
	ctx, cancel := context.WithCancel(g.t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	g.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	synctest.Wait()
}

func (g *rig) remoteClaims() []corev1.PersistentVolumeClaim {
	g.t.Helper()
	list, err := g.remote.CoreV1().PersistentVolumeClaims("").List(g.t.Context(), metav1.ListOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return list.Items
}

func (g *rig) volume(uid types.UID) *corev1.PersistentVolume {
	g.t.Helper()
	v, err := g.home.CoreV1().PersistentVolumes().Get(g.t.Context(), "pvc-"+string(uid), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)}
}

func claim(uid types.UID, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid, Annotations: map[string]string{selectedNode: "far"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("remote"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			VolumeMode:       ptr.To(corev1.PersistentVolumeBlock),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	if change != nil {
		change(c)
	}
	return c
}

func reader() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "reader", UID: "p"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}
}

// bind binds a claim to its volume, as the home cluster does.
func (g *rig) bind(uid types.UID) {
	g.t.Helper()
	v := g.volume(uid)
	if v == nil {
		g.t.Fatal("there is no volume")
	}
	v.Status.Phase = corev1.VolumeBound
	if _, err := g.home.CoreV1().PersistentVolumes().Update(g.t.Context(), v, metav1.UpdateOptions{}); err != nil {
		g.t.Fatal(err)
	}
	bound := claim(uid, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = v.Name, corev1.ClaimBound, v.Spec.Capacity
	})
	if _, err := g.home.CoreV1().PersistentVolumeClaims("shop").Update(g.t.Context(), bound, metav1.UpdateOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

func TestClaimThatIsPlacedHereGetsAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, claim("u", nil))
		g.run()
		remotes := g.remoteClaims()
		if len(remotes) != 1 {
			t.Fatalf("there are %d remote claims; reported %q", len(remotes), g.recorded)
		}
		r := remotes[0]
		if r.Namespace != "home-shop" || !g.opts.Translate.Home.Owns(&r) || translate.UIDOf(&r) != "u" || translate.NameOf(&r).String() != "shop/data" {
			t.Errorf("the remote claim is %+v", r.ObjectMeta)
		}
		if s := r.Spec; ptr.Deref(s.StorageClassName, "") != "fast" || s.AccessModes[0] != corev1.ReadWriteOncePod || *s.VolumeMode != corev1.PersistentVolumeBlock || s.Resources.Requests.Storage().String() != "3Gi" {
			t.Errorf("the remote claim has %+v", s)
		}
		v := g.volume("u")
		if v == nil || v.Spec.ClaimRef.UID != "u" || v.Spec.StorageClassName != "remote" || v.Spec.Capacity.Storage().String() != "3Gi" || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			t.Fatalf("the volume is %+v", v)
		}
		if len(g.recorded) != 1 || !strings.Contains(g.recorded[0], "ProvisioningSucceeded") {
			t.Errorf("reported %q", g.recorded)
		}
		g.bind("u")
		names, err := g.RemoteClaims(t.Context(), reader())
		if err != nil || names["v"] != r.Name {
			t.Errorf("a pod has %v, %v; want claim %s", names, err, r.Name)
		}
	})
}

func TestClaimsOfOthersAreLeftAlone(t *testing.T) {
	for what, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"another node":        func(c *corev1.PersistentVolumeClaim) { c.Annotations[selectedNode] = "near" },
		"no node":             func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil },
		"another class":       func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("other") },
		"another provisioner": func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("disk") },
		"a volume":            func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "foreign" },
		"a data source": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, claim("u", change))
				g.run()
				if found := g.remoteClaims(); len(found) > 0 || g.volume("u") != nil {
					t.Errorf("there are %+v and %+v", found, g.volume("u"))
				}
			})
		})
	}
}

// The claim of a pod that no scheduler has placed is provisioned as well.
func TestPodMakesItsClaimAVolume(t *testing.T) {
	g := newRig(t, claim("u", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }))
	_, err := g.RemoteClaims(t.Context(), reader())
	if _, again := errdefs.RetryAfter(err); !again || !strings.Contains(err.Error(), "not bound yet") {
		t.Fatalf("got %v", err)
	}
	g.bind("u")
	names, err := g.RemoteClaims(t.Context(), reader())
	if err != nil || len(g.remoteClaims()) != 1 || names["v"] != g.remoteClaims()[0].Name {
		t.Errorf("got %v, %v", names, err)
	}
}

func TestPodWhoseClaimIsNotServed(t *testing.T) {
	bound := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "v", corev1.ClaimBound }
	volume := func(driver, handle string, labels map[string]string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: labels},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "u"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}},
		}
	}
	ours := translate.Home{Cluster: "home", Node: "far", UID: "home-uid"}.Labels()
	for _, c := range []struct {
		what, says string
		permanent  bool
		objects    []runtime.Object
	}{
		{"no claim", `"data" not found`, false, nil},
		{"deleted", "is being deleted", false, []runtime.Object{claim("u", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) })}},
		{"class", "does not map", true, []runtime.Object{claim("u", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("other") })}},
		{"provisioner", "disk.example.com", true, []runtime.Object{claim("u", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("disk") })}},
		{"volume of home", "volume of the home cluster", true, []runtime.Object{claim("u", bound), volume("disk.example.com", "home-shop/x", ours)}},
		{"another node", "another node", true, []runtime.Object{claim("u", bound), volume(Provisioner, "home-shop/x", translate.Home{Cluster: "home", Node: "near", UID: "home-uid"}.Labels())}},
		{"another namespace", "remote namespace home-other", true, []runtime.Object{claim("u", bound), volume(Provisioner, "home-other/x", ours)}},
		{"another claim", "bound to another claim", false, []runtime.Object{claim("u2", bound), volume(Provisioner, "home-shop/x", ours)}},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := newRig(t, c.objects...)
			_, err := g.RemoteClaims(t.Context(), reader())
			if err == nil || !strings.Contains(err.Error(), c.says) || errdefs.IsPermanent(err) != c.permanent || errdefs.IsNotFound(err) {
				t.Errorf("got %v", err)
			}
			if found := g.remoteClaims(); len(found) > 0 {
				t.Errorf("there are %+v", found)
			}
		})
	}
}

func TestEphemeralVolumeHasTheClaimThatWasMadeForThePod(t *testing.T) {
	own := claim("u", func(c *corev1.PersistentVolumeClaim) {
		c.Name = "reader-v"
		c.OwnerReferences = []metav1.OwnerReference{{UID: "p", Controller: ptr.To(true)}}
	})
	pod := reader()
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	g := newRig(t, own)
	if _, err := g.RemoteClaims(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
		t.Errorf("got %v, want that it is not bound yet", err)
	}
	pod.UID = "another"
	if _, err := g.RemoteClaims(t.Context(), pod); !errdefs.IsPermanent(err) {
		t.Errorf("a pod has the claim of another: %v", err)
	}
}

// A remote claim that this node does not own is not used, and an event on the home
// claim says so.
func TestNameConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, claim("u", nil))
		foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "home-shop", Name: g.opts.Translate.ClaimName(claim("u", nil))}}
		if _, err := g.remote.CoreV1().PersistentVolumeClaims("home-shop").Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		g.run()
		if len(g.recorded) == 0 || !strings.Contains(g.recorded[0], "left alone") || g.volume("u") != nil {
			t.Errorf("reported %q, volume %+v", g.recorded, g.volume("u"))
		}
	})
}

func TestReclaim(t *testing.T) {
	for _, c := range []struct {
		what           string
		delete         bool
		change         func(g *rig, v *corev1.PersistentVolume)
		claimStays     bool
		remote, volume bool // still exist
	}{
		{what: "by default the data stays", remote: true, volume: true},
		{what: "delete", delete: true},
		{what: "the claim at home is there after all", delete: true, claimStays: true, remote: true, volume: true},
		{what: "the policy was changed since", delete: true, remote: true, volume: true,
			change: func(_ *rig, v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
			}},
		{what: "the remote claim is no longer ours", delete: true, remote: true,
			change: func(g *rig, _ *corev1.PersistentVolume) {
				foreign := g.remoteClaims()[0]
				foreign.Labels = nil
				if _, err := g.remote.CoreV1().PersistentVolumeClaims(foreign.Namespace).Update(g.t.Context(), &foreign, metav1.UpdateOptions{}); err != nil {
					g.t.Fatal(err)
				}
			}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, claim("u", nil))
				g.opts.Delete = c.delete
				g.run()
				g.bind("u")
				if !c.claimStays {
					if err := g.home.CoreV1().PersistentVolumeClaims("shop").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if len(g.remoteClaims()) != 1 {
					t.Fatal("the remote claim went before the volume was released")
				}
				v := g.volume("u")
				v.Status.Phase = corev1.VolumeReleased
				if c.change != nil {
					c.change(g, v)
				}
				if _, err := g.home.CoreV1().PersistentVolumes().Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if left := len(g.remoteClaims()) > 0; left != c.remote || (g.volume("u") != nil) != c.volume {
					t.Errorf("remote claim there: %v, volume: %+v", left, g.volume("u"))
				}
			})
		})
	}
}

// A volume that somebody deletes goes once its remote claim is deleted.
func TestDeletedVolumeGoesAfterItsRemoteClaim(t *testing.T) {
	g := newRig(t)
	g.opts.Delete = true
	gone := claim("u", nil)
	if err := g.provision(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	v := g.volume("u")
	v.DeletionTimestamp, v.Status.Phase = ptr.To(metav1.Now()), corev1.VolumeAvailable
	if len(v.Finalizers) != 1 {
		t.Fatalf("finalizers %v", v.Finalizers)
	}
	if _, err := g.home.CoreV1().PersistentVolumes().Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := g.reclaim(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if len(g.remoteClaims()) > 0 || len(g.volume("u").Finalizers) > 0 {
		t.Errorf("left are %+v and %+v", g.remoteClaims(), g.volume("u"))
	}
}

func TestCollectGarbageDeletesOnlyUnboundClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, claim("here", nil))
		g.run()
		g.bind("here")
		old, young := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.Now()
		home := g.opts.Translate.Home
		for name, c := range map[string]struct {
			labels  map[string]string
			phase   corev1.PersistentVolumeClaimPhase
			created metav1.Time
		}{
			"left":    {home.LabelsOf("shop", "a"), corev1.ClaimPending, old},
			"young":   {home.LabelsOf("shop", "b"), corev1.ClaimPending, young},
			"data":    {home.LabelsOf("shop", "c"), corev1.ClaimBound, old},
			"foreign": {nil, corev1.ClaimPending, old},
		} {
			r := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "home-shop", Name: name, Labels: c.labels, CreationTimestamp: c.created}}
			r.Status.Phase = c.phase
			if _, err := g.remote.CoreV1().PersistentVolumeClaims("home-shop").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if err := g.CollectGarbage(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		left := map[string]bool{}
		for _, r := range g.remoteClaims() {
			left[r.Name] = true
		}
		if left["left"] || !left["young"] || !left["data"] || !left["foreign"] || len(left) != 4 {
			t.Errorf("left are %v", left)
		}
	})
}
