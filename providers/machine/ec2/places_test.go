package ec2

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2/ec2test"
)

func TestSubnetsAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.SetCapacity(ec2test.SubnetA, false)
		r.create(spec("a-1", "m7i.large"))
		if subnet := r.only().Request.Get("NetworkInterface.1.SubnetId"); subnet != ec2test.SubnetB {
			t.Errorf("it is in subnet %s", subnet)
		}
		r.server.SetCapacity(ec2test.SubnetB, false)
		_, err := r.driver.Create(t.Context(), spec("b-1", "m7i.large"))
		if delay, ok := errdefs.RetryAfter(err); !ok || delay < time.Minute || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "in 2 subnets") {
			t.Errorf("without capacity: %v, after %v", err, delay)
		}
		r.server.SetCapacity(ec2test.SubnetA, true)
		time.Sleep(time.Minute)
		r.create(spec("b-1", "m7i.large"))
	})
}

// A type of machines may have several types of instances: the next ones are made where the zones of all
// subnets have none of the first.
func TestTypesOfInstancesAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.SetCapacityOf("m7i.large", ec2test.SubnetA, false)
		r.server.SetCapacityOf("m7i.large", ec2test.SubnetB, false)
		either := spec("a-1", "m7i.large")
		either.Arguments = map[string]string{"instanceType": "m7i.large, m7a.large"}
		r.world.Lose("RunInstances", 3) // the first two of them are refused
		if _, err := r.driver.Create(t.Context(), either); err == nil {
			t.Fatal("the answer was not lost")
		}
		m := r.create(either)
		if made := r.only(); made.ID != m.ID || made.Request.Get("InstanceType") != "m7a.large" {
			t.Errorf("the machine is %s, and the instance %s a %s", m.ID, made.ID, made.Request.Get("InstanceType"))
		}
	})
}

// Many pods for which there is no capacity leave the calls of creations to those for which there is.
func TestPlacesWithoutCapacityAreNotAskedByEachPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		for _, subnet := range []string{ec2test.SubnetA, ec2test.SubnetB} {
			r.server.SetCapacityOf("m7i.large", subnet, false)
		}
		var creations sync.WaitGroup
		places := make(chan bool, 10) // provider machine makes so many at a time
		for n := range 100 {
			creations.Go(func() {
				places <- true
				defer func() { <-places }()
				_, err := r.driver.Create(t.Context(), spec(fmt.Sprintf("a-%d", n), "m7i.large"))
				if _, late := errdefs.RetryAfter(err); !late || !strings.Contains(err.Error(), "InsufficientInstanceCapacity") {
					t.Errorf("without capacity: %v", err)
				}
			})
		}
		creations.Wait()
		began := time.Now()
		r.create(spec("b-1", "old"))
		if calls := r.world.Calls("RunInstances"); calls > 25 || time.Since(began) > 5*time.Second {
			t.Errorf("there were %d creations, and another pod had to wait for %v", calls, time.Since(began))
		}
	})
}

// A place where another pod found no capacity is asked all the same for a machine that it may have made.
func TestLostAnswerOfAPlaceWithoutCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.world.Lose("RunInstances", 1)
		if _, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large")); err == nil {
			t.Fatal("the answer was not lost")
		}
		first := r.only()
		r.server.SetCapacity(ec2test.SubnetA, false)
		r.create(spec("b-1", "m7i.large"))
		if m := r.create(spec("a-1", "m7i.large")); m.ID != first.ID {
			t.Errorf("the machine is %s, and the instance of the lost answer %s", m.ID, first.ID)
		}
	})
}

// A zone that is out of order fails creations as if they might have been made.
func TestZoneThatIsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.SetDown(ec2test.SubnetA, true)
		began := time.Now()
		for {
			_, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large"))
			if err == nil {
				break
			}
			if !errdefs.IsUnavailable(err) || time.Since(began) > 10*time.Minute {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if time.Since(began) < 2*time.Minute && len(r.instances()) > 0 {
				t.Fatal("another subnet is tried while the first may have made the instance")
			}
			r.list()
			time.Sleep(20 * time.Second)
		}
		if subnet := r.only().Request.Get("NetworkInterface.1.SubnetId"); subnet != ec2test.SubnetB {
			t.Errorf("it is in subnet %s", subnet)
		}
	})
}
