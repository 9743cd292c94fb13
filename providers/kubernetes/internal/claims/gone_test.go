package claims

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// behindProxy makes a proxy answer reads of claims with 404 while the returned value is
// set.
func behindProxy(cluster *fake.Clientset) *atomic.Bool {
	var down atomic.Bool
	fakeapi.React(&cluster.Fake, "get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", corev1.Resource("persistentvolumeclaims"), "data", "no backend", 0, true)
	})
	return &down
}

// release deletes the claim and releases its volume, as the home cluster does.
func (g *rig) release(t *testing.T) {
	t.Helper()
	if err := g.home.CoreV1().PersistentVolumeClaims("shop").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	v := g.volume("u")
	v.Status.Phase = corev1.VolumeReleased
	if _, err := g.home.CoreV1().PersistentVolumes().Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// The 404 of a proxy, on either side, does not mean that a claim is deleted: no data
// are deleted for it, and no volume while its data may exist.
func TestReclaimBehindAProxy(t *testing.T) {
	for _, side := range []string{"home", "remote"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, claim("u", nil))
				g.opts.Delete = true
				down := behindProxy(map[string]*fake.Clientset{"home": g.home, "remote": g.remote}[side])
				g.run()
				g.bind("u")
				down.Store(true)
				g.release(t)
				time.Sleep(time.Minute)
				if len(g.remoteClaims()) != 1 || g.volume("u") == nil {
					t.Errorf("left are %+v and %+v", g.remoteClaims(), g.volume("u"))
				}
				down.Store(false)
				time.Sleep(5 * time.Minute)
				if len(g.remoteClaims()) != 0 || g.volume("u") != nil {
					t.Errorf("without the proxy, left are %+v and %+v", g.remoteClaims(), g.volume("u"))
				}
			})
		})
	}
}

// The cache may be behind: the current policy of a volume decides about the data.
func TestReclaimByThePolicyAsItIs(t *testing.T) {
	g := newRig(t)
	g.opts.Delete = true
	if err := g.provision(t.Context(), claim("u", nil)); err != nil {
		t.Fatal(err)
	}
	is := g.volume("u")
	seen := is.DeepCopy()
	seen.Status.Phase = corev1.VolumeReleased
	is.Spec.PersistentVolumeReclaimPolicy, is.Status.Phase = corev1.PersistentVolumeReclaimRetain, corev1.VolumeReleased
	if _, err := g.home.CoreV1().PersistentVolumes().Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := g.reclaim(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if len(g.remoteClaims()) != 1 || g.volume("u") == nil {
		t.Errorf("left are %+v and %+v", g.remoteClaims(), g.volume("u"))
	}
}

// A remote claim that is lost is reported, and not created again.
func TestRemoteClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, claim("u", nil))
		down := behindProxy(g.remote)
		g.run()
		g.bind("u")
		down.Store(true)
		if _, err := g.RemoteClaims(t.Context(), reader()); !errdefs.IsUnavailable(err) || strings.Contains(err.Error(), "does not exist") {
			t.Errorf("behind a proxy: %v", err)
		}
		down.Store(false)
		lost := g.remoteClaims()[0]
		if err := g.remote.CoreV1().PersistentVolumeClaims(lost.Namespace).Delete(t.Context(), lost.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.RemoteClaims(t.Context(), reader()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "does not exist any more") {
			t.Errorf("a pod with the claim has %v", err)
		}
		if events := g.recordedLines(); !strings.Contains(events, "RemoteClaimLost") {
			t.Errorf("reported %q", events)
		}
		time.Sleep(time.Minute)
		if found := g.remoteClaims(); len(found) != 0 {
			t.Errorf("there is %+v", found)
		}
	})
}

// A process that may have lost the node to another one reclaims nothing.
func TestNothingIsReclaimedWithoutTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mine atomic.Bool
		mine.Store(true)
		g := newRig(t, claim("u", nil))
		g.opts.Delete, g.opts.MayBegin = true, mine.Load
		g.run()
		g.bind("u")
		synctest.Wait()
		mine.Store(false)
		g.release(t)
		time.Sleep(10 * time.Minute)
		if len(g.remoteClaims()) != 1 || g.volume("u") == nil {
			t.Errorf("left are %+v and %+v", g.remoteClaims(), g.volume("u"))
		}
		mine.Store(true)
		time.Sleep(10 * time.Second)
		if len(g.remoteClaims()) != 0 || g.volume("u") != nil {
			t.Errorf("with the node, left are %+v and %+v", g.remoteClaims(), g.volume("u"))
		}
	})
}
