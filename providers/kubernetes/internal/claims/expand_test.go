package claims

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// ask changes the requested size of the home claim.
func (g *rig) ask(size string) {
	g.t.Helper()
	home := g.home.CoreV1().PersistentVolumeClaims("shop")
	claim, err := home.Get(g.t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	claim.Spec.Resources.Requests = sizeOf(resource.MustParse(size))
	if _, err := home.Update(g.t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		g.t.Fatal(err)
	}
	synctest.Wait()
}

// grown sets the capacity of the remote claim.
func (g *rig) grown(size string) {
	g.t.Helper()
	remote := g.remoteClaims()[0]
	remote.Status.Capacity = sizeOf(resource.MustParse(size))
	if _, err := g.remote.CoreV1().PersistentVolumeClaims(remote.Namespace).Update(g.t.Context(), &remote, metav1.UpdateOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

// wantSizes checks the requested size of the remote claim, and the capacity of the home
// volume and claim.
func (g *rig) wantSizes(asked, has string) {
	g.t.Helper()
	synctest.Wait()
	claim, err := g.home.CoreV1().PersistentVolumeClaims("shop").Get(g.t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	if got := g.remoteClaims()[0].Spec.Resources.Requests.Storage().String(); got != asked {
		g.t.Errorf("the remote claim is asked for %s, want %s; reported %q", got, asked, g.recordedLines())
	}
	if v, c := g.volume("u").Spec.Capacity.Storage().String(), claim.Status.Capacity.Storage().String(); v != has || c != has {
		g.t.Errorf("at home the volume has %s and the claim %s, want %s; reported %q", v, c, has, g.recordedLines())
	}
}

// recordedLines are the recorded events, a line each.
func (g *rig) recordedLines() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.recorded, "\n")
}

// ofThree returns a rig with a claim of 3Gi.
func ofThree(t *testing.T) *rig {
	g := newRig(t, claim("u", nil))
	g.run()
	g.bind("u")
	g.grown("3Gi")
	synctest.Wait()
	g.remote.ClearActions()
	return g
}

func TestClaimGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ofThree(t)
		time.Sleep(time.Hour)
		if asked := g.remote.Actions(); len(asked) > 0 {
			t.Errorf("of a claim at rest the remote cluster was asked %v", asked)
		}
		g.ask("5Gi")
		g.wantSizes("5Gi", "3Gi")
		g.grown("6Gi") // the capacity is rounded up
		time.Sleep(expandInterval)
		g.wantSizes("5Gi", "6Gi")
		if recorded := g.recordedLines(); strings.Count(recorded, "Normal Resizing") != 1 || strings.Count(recorded, "Normal VolumeResizeSuccessful") != 1 {
			t.Errorf("reported %q", recorded)
		}
		g.remote.ClearActions()
		time.Sleep(time.Hour)
		if asked := g.remote.Actions(); len(asked) > 0 {
			t.Errorf("once it has grown the remote cluster was asked %v", asked)
		}
	})
}

// A size that is not available in the remote cluster may be reduced again.
func TestClaimGrowsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ofThree(t)
		g.ask("500Gi")
		g.ask("4Gi")
		g.grown("4Gi")
		time.Sleep(expandInterval)
		g.wantSizes("4Gi", "4Gi")
	})
}

// If the remote cluster refuses the size, an event says why, and it is requested again.
func TestRemoteClusterRefusesToExpand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ofThree(t)
		var refuses atomic.Bool
		refuses.Store(true)
		fakeapi.React(&g.remote.Fake, "patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuses.Load(), nil, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("the storageclass must support resize"))
		})
		g.ask("5Gi")
		if recorded := g.recordedLines(); !strings.Contains(recorded, "Warning VolumeResizeFailed") || !strings.Contains(recorded, "must support resize") {
			t.Errorf("reported %q", recorded)
		}
		g.wantSizes("3Gi", "3Gi")
		refuses.Store(false)
		time.Sleep(5 * time.Minute)
		g.wantSizes("5Gi", "3Gi")
	})
}

func TestClaimThatIsNoLongerOursDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := ofThree(t)
		foreign := g.remoteClaims()[0]
		foreign.Labels = nil
		if _, err := g.remote.CoreV1().PersistentVolumeClaims(foreign.Namespace).Update(t.Context(), &foreign, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		g.ask("5Gi")
		g.wantSizes("3Gi", "3Gi")
		if recorded := g.recordedLines(); !strings.Contains(recorded, "left alone") {
			t.Errorf("reported %q", recorded)
		}
	})
}

// A size that was requested while no provider ran is applied by the next one.
func TestClaimThatHasGrownUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := ofThree(t)
		before.Close()
		before.ask("5Gi")
		before.wantSizes("3Gi", "3Gi")
		after := New(before.opts)
		next := &rig{Claims: after, t: t, home: before.home, remote: before.remote}
		next.run()
		next.wantSizes("5Gi", "3Gi")
	})
}
