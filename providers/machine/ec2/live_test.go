//go:build ec2live

package ec2

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// TestLive makes an instance in a real account, lists it, reads its console and deletes it, with AWS's
// variables, and EC2_TEST_SUBNETS (with commas) and EC2_TEST_IMAGE. It fails without. EC2_TEST_TYPE is
// t3.micro, and EC2_TEST_SPOT is false.
func TestLive(t *testing.T) {
	account, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	field, err := json.Marshal(Config{ImageID: os.Getenv("EC2_TEST_IMAGE"), Subnets: strings.Split(os.Getenv("EC2_TEST_SUBNETS"), ",")})
	if err != nil {
		t.Fatal(err)
	}
	kind := machine.TypeConfig{Name: cmp.Or(os.Getenv("EC2_TEST_TYPE"), "t3.micro"), Arguments: map[string]string{"spot": cmp.Or(os.Getenv("EC2_TEST_SPOT"), "false")}}
	d, err := New(machine.Config{EC2: field, Types: []machine.TypeConfig{kind}}, account)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("live-%d-1", time.Now().Unix())
	node := map[string]string{podgroup.TagClusterName: "virtual-kubelet-live", podgroup.TagNodeName: name}
	s := machine.Spec{Name: name, Tags: map[string]string{tagName: name, podgroup.TagClusterName: "virtual-kubelet-live", podgroup.TagNodeName: name}, UserData: "{}", Type: kind.Name, Arguments: kind.Arguments}
	m, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	await := func(state machine.State) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Minute)
		for {
			list, err := d.List(t.Context(), node)
			if err == nil && len(list) == 1 && list[0].ID == m.ID && list[0].State == state {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it is not %s: %+v: %v", state, list, err)
			}
			time.Sleep(5 * time.Second)
		}
	}
	defer func() {
		if err := d.Delete(t.Context(), m); err != nil {
			t.Error(err)
		}
		await(machine.Ended)
	}()
	if again, err := d.Create(t.Context(), s); err != nil || again.ID != m.ID {
		t.Errorf("once more it is %+v: %v", again, err)
	}
	s.UserData = "another"
	if again, err := d.Create(t.Context(), s); err != nil || again.ID != m.ID {
		t.Errorf("with other user data it is %+v: %v", again, err)
	}
	await(machine.Running)
	if text, err := d.Console(t.Context(), m, 512); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the console is %q: %v", text, err)
	}
}
