package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The driver of another module checks its own field; its mistakes are named with the others.
func TestFieldOfAnotherModule(t *testing.T) {
	data := []byte(`{cluster: home, stateDir: relative, ec2: {imageID: x}, bootstrap: {url: "https://10.0.0.5:10271"}}`)
	_, err := ParseConfigWith(data, func(c Config) error {
		if string(c.EC2) != `{"imageID":"x"}` {
			t.Errorf("the field is %s", c.EC2)
		}
		return errors.Join(errors.New("ec2.imageID: one"), errors.New("ec2.subnets: two"))
	})
	if !errdefs.IsInvalidInput(err) {
		t.Fatalf("the error is %v", err)
	}
	for _, part := range []string{"machine config: 3 mistakes: ", "stateDir: ", "ec2.imageID: one", "ec2.subnets: two"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if _, err := ParseConfig([]byte(`{cluster: home, stateDir: /state, ec2: {}, exec: {command: [x]}, bootstrap: {url: "https://10.0.0.5:10271"}}`)); err == nil || !strings.Contains(err.Error(), "exec, qemu, ec2: one of them") {
		t.Errorf("two drivers: %v", err)
	}
}

// A program that imports this package alone does not have the driver, and says so.
func TestDriverOfAnotherModuleIsNotThere(t *testing.T) {
	w := newWorld(t)
	w.cfg.EC2 = []byte(`{"imageID": "ami-1"}`)
	_, _, err := New(grouptest.NewCluster("uid").Config(), w.cfg, nil)
	if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "providers/machine/ec2") {
		t.Errorf("the error is %v", err)
	}
	if b, err := newBackend(w.cluster.Config(), w.cfg, w.lab); err != nil {
		t.Errorf("with the driver: %v", err)
	} else if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// closable is a driver with something to close.
type closable struct {
	Driver
	closed int
}

func (c *closable) Close() error {
	c.closed++
	return nil
}

// A driver is closed, also where what serves machines has closed its listener first.
func TestDriverIsClosed(t *testing.T) {
	w := newWorld(t)
	driver := &closable{Driver: w.lab}
	b, err := newBackend(w.cluster.Config(), w.cfg, driver)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil || driver.closed != 1 {
		t.Errorf("the driver was closed %d times, want once: %v", driver.closed, err)
	}
}
