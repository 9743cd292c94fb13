package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2/ec2test"
)

// rig is the driver on the fake.
type rig struct {
	t       *testing.T
	server  *ec2test.Server
	world   *grouptest.World
	account aws.Config
	cfg     machine.Config
	driver  machine.Driver
}

const usual = `{"imageID": "` + ec2test.ImageID + `", "subnets": ["` + ec2test.SubnetA + `", "` + ec2test.SubnetB + `"], "securityGroups": ["sg-0123456789abcdef0"]}`

func newRig(t *testing.T, field string) *rig {
	t.Helper()
	w := grouptest.New(time.Second)
	r := &rig{t: t, world: w, server: ec2test.New(w)}
	r.account = aws.Config{
		Region: ec2test.Region, BaseEndpoint: aws.String("http://ec2.example"),
		Credentials: credentials.NewStaticCredentialsProvider(ec2test.AccessKey, ec2test.SecretKey, ""),
		HTTPClient:  &http.Client{Transport: grouptest.Serve(t, r.server).Transport(t)},
	}
	r.cfg = machine.Config{EC2: []byte(field), Types: []machine.TypeConfig{
		{Name: "m7i.large"}, {Name: "old", Arguments: map[string]string{"instanceType": "t2.micro"}},
		{Name: "cheap", Arguments: map[string]string{"instanceType": "m7i.large", "spot": "true", "volumeGiB": "20", "subnets": ec2test.SubnetB}},
		{Name: "none", Arguments: map[string]string{"instanceType": "z9.huge"}},
	}}
	r.restart()
	return r
}

// restart makes another driver, as a process does that begins again.
func (r *rig) restart() {
	r.t.Helper()
	driver, err := New(r.cfg, r.account)
	if err != nil {
		r.t.Fatal(err)
	}
	r.driver = driver
}

// nodeTags are those by which a node lists its machines. The cluster's name has what patterns have, too.
func nodeTags() map[string]string {
	return map[string]string{podgroup.TagClusterName: `ho*me?\`, podgroup.TagNodeName: "vk"}
}

func spec(name, kind string) machine.Spec {
	tags := nodeTags()
	maps.Copy(tags, map[string]string{podgroup.TagClusterUID: "cluster-uid", podgroup.TagUID: "uid-" + name, tagName: name})
	s := machine.Spec{Name: name, Tags: tags, UserData: `{"token": "of ` + name + `"}`, Type: kind}
	switch kind {
	case "old":
		s.Arguments = map[string]string{"instanceType": "t2.micro"}
	case "none":
		s.Arguments = map[string]string{"instanceType": "z9.huge"}
	case "cheap":
		s.Arguments = map[string]string{"instanceType": "m7i.large", "spot": "true", "volumeGiB": "20", "subnets": ec2test.SubnetB}
	}
	return s
}

func (r *rig) create(s machine.Spec) machine.Machine {
	r.t.Helper()
	m, err := r.driver.Create(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// list returns the machines by name.
func (r *rig) list() map[string]machine.Machine {
	r.t.Helper()
	all, err := r.driver.List(r.t.Context(), nodeTags())
	if err != nil {
		r.t.Fatal(err)
	}
	byName := map[string]machine.Machine{}
	for _, m := range all {
		if _, twice := byName[m.Name]; twice {
			r.t.Errorf("the list has machine %s twice", m.Name)
		}
		byName[m.Name] = m
	}
	return byName
}

// instances returns those that have not ended.
func (r *rig) instances() []ec2test.Instance {
	return slices.DeleteFunc(r.server.Instances(), func(i ec2test.Instance) bool { return i.State == "shutting-down" || i.State == "terminated" })
}

func (r *rig) only() ec2test.Instance {
	r.t.Helper()
	all := r.instances()
	if len(all) != 1 {
		r.t.Fatalf("there are %d instances, not one", len(all))
	}
	return all[0]
}

func TestLifeOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.Step, r.server.Lag = 10*time.Second, 3*time.Second
		m := r.create(spec("a-1", "m7i.large"))
		if m.ID == "" || m.Name != "a-1" || m.Address == "" || m.State != machine.Starting || m.Tags[podgroup.TagUID] != "uid-a-1" {
			t.Errorf("the machine is %+v", m)
		}
		if in := r.list()["a-1"]; in.ID != m.ID || in.Address != m.Address {
			t.Errorf("a machine that EC2 does not list yet is %+v", in)
		}
		if err := r.driver.Delete(t.Context(), m); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "yet") {
			t.Errorf("a deletion before EC2 knows the instance: %v", err)
		}
		time.Sleep(11 * time.Second)
		if in := r.list()["a-1"]; in.State != machine.Running || in.Created.IsZero() {
			t.Errorf("it is %+v", in)
		}
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Error(err)
		}
		if in := r.list()["a-1"]; in.State != machine.Ending {
			t.Errorf("after its deletion it is %+v", in)
		}
		time.Sleep(11 * time.Second)
		if in := r.list()["a-1"]; in.State != machine.Ended {
			t.Errorf("in the end it is %+v", in)
		}
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Errorf("a deletion of what has ended: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if list := r.list(); len(list) > 0 {
			t.Errorf("two hours later the list is %v", list)
		}
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Errorf("a deletion of what is gone: %v", err)
		}
	})
}

// What instances are made of: a list of parameters to read.
func TestParametersOfAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `{"imageID": "`+ec2test.ImageID+`", "subnets": ["`+ec2test.SubnetA+`"], "securityGroups": ["sg-0123456789abcdef0"], "script": "exec agent", "instanceProfile": "`+ec2test.Profile+`", "keyName": "me", "tags": {"team": "a"}}`)
		r.create(spec("a-1", "cheap"))
		made := r.only()
		for name, want := range map[string]string{
			"InstanceType": "m7i.large", "ImageId": ec2test.ImageID, "NetworkInterface.1.SubnetId": ec2test.SubnetB, "NetworkInterface.1.SecurityGroupId.1": "sg-0123456789abcdef0",
			"NetworkInterface.1.AssociatePublicIpAddress": "false", "InstanceInitiatedShutdownBehavior": "terminate", "IamInstanceProfile.Name": "pods", "KeyName": "me",
			"MetadataOptions.HttpTokens": "required", "MetadataOptions.HttpPutResponseHopLimit": "1", "MetadataOptions.HttpProtocolIpv6": "disabled", "MetadataOptions.InstanceMetadataTags": "disabled",
			"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.VolumeSize": "20", "BlockDeviceMapping.1.Ebs.Encrypted": "true", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
			"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time", "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
			"TagSpecification.1.ResourceType": "instance", "TagSpecification.2.ResourceType": "volume", "TagSpecification.3.ResourceType": "spot-instances-request",
		} {
			if got := made.Request.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if made.Tags["team"] != "a" || made.Tags["Name"] != "a-1" || made.Tags[tagName] != "a-1" {
			t.Errorf("the tags are %v", made.Tags)
		}
		for _, part := range []string{"#!/bin/sh\n", `{"token": "of a-1"}`, "blackhole 169.254.169.254/32", "exec agent"} {
			if !strings.Contains(made.UserData, part) {
				t.Errorf("the user data lack %q: %s", part, made.UserData)
			}
		}
		if strings.Index(made.UserData, "blackhole") > strings.Index(made.UserData, "exec agent") {
			t.Error("the agent starts before pods are kept from the metadata service")
		}
		for _, i := range r.server.Instances() {
			if len(i.Request.Get("ClientToken")) != 64 {
				t.Errorf("the client token is %q", i.Request.Get("ClientToken"))
			}
		}
	})
}

// However answers get lost, a machine is one instance.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.world.Lose("RunInstances", 2)
		for range 2 {
			if _, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large")); !errdefs.IsUnavailable(err) {
				t.Fatalf("a lost answer is %v", err)
			}
		}
		m := r.create(spec("a-1", "m7i.large"))
		if made := r.only(); made.ID != m.ID {
			t.Errorf("the machine is %s, and the instance %s", m.ID, made.ID)
		}
	})
}

// An answer need not have the tags: EC2 has compared the call with the first of its token.
func TestAnswerWithoutTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.NoTags = true
		if m := r.create(spec("a-1", "m7i.large")); m.Name != "a-1" || m.Tags[podgroup.TagUID] != "uid-a-1" {
			t.Errorf("the machine is %+v", m)
		}
	})
}

// A process that begins again has another token for the agent; the machine keeps its own.
func TestLostAnswerAndAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.Lag = 4 * time.Second
		r.world.Lose("RunInstances", 1)
		again := spec("a-1", "m7i.large")
		again.Tags["TokenSHA256"] = "first"
		if _, err := r.driver.Create(t.Context(), again); err == nil {
			t.Fatal("the answer was not lost")
		}
		r.restart()
		again = spec("a-1", "m7i.large")
		again.Tags["TokenSHA256"], again.UserData = "second", "another"
		if _, err := r.driver.Create(t.Context(), again); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "does not list it") {
			t.Fatalf("before EC2 lists it: %v", err)
		}
		if err := r.driver.Delete(t.Context(), machine.Machine{Name: "a-1", Tags: again.Tags}); !errdefs.IsUnavailable(err) {
			t.Errorf("a deletion before EC2 lists it: %v", err)
		}
		time.Sleep(5 * time.Second)
		m := r.create(again)
		if made := r.only(); made.ID != m.ID || m.Tags["TokenSHA256"] != "first" {
			t.Errorf("the machine is %+v", m)
		}
	})
}

// A machine in reserve is made without the tags of the pod that gets it.
func TestMachineOfTheReserveIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		reserve := spec("a-1", "m7i.large")
		delete(reserve.Tags, podgroup.TagUID)
		r.create(reserve)
		time.Sleep(time.Minute)
		r.restart() // which knows no ID, and has not listed it
		m := machine.Machine{Name: "a-1", Tags: maps.Clone(reserve.Tags)}
		m.Tags[podgroup.TagUID] = "of the pod"
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Error(err)
		}
		if left := r.instances(); len(left) > 0 {
			t.Errorf("these are left: %+v", left)
		}
	})
}

// An instance of the same token that has ended is known for an hour, but not by its tags, and then is in no
// list any more.
func TestEarlierInstanceHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		m := r.create(spec("a-1", "m7i.large"))
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if m := r.create(spec("a-1", "m7i.large")); m.State != machine.Ending {
			t.Errorf("the machine that ends is %+v", m)
		}
		r.restart()
		if m := r.create(spec("a-1", "m7i.large")); m.State != machine.Ended || m.Name != "a-1" {
			t.Errorf("the machine is %+v", m)
		}
		time.Sleep(2 * time.Minute) // it loses its tags
		r.restart()
		again := spec("a-1", "m7i.large")
		again.UserData = "of a process that has another token"
		if m := r.create(again); m.State != machine.Ended || m.Name != "a-1" || m.Tags[podgroup.TagUID] != "uid-a-1" {
			t.Errorf("without its tags the machine is %+v", m)
		}
		time.Sleep(3 * time.Hour)
		r.restart()
		other := spec("a-1", "m7i.large")
		other.UserData = "another"
		var err error
		for range 100 {
			if m, err = r.driver.Create(t.Context(), other); err == nil {
				break
			}
			time.Sleep(10 * time.Second)
		}
		if made := r.only(); err != nil || made.ID != m.ID {
			t.Errorf("the machine is %+v: %v", m, err)
		}
	})
}

// An answer that was lost in the second subnet is asked for again there, although the first has room now.
func TestLostAnswerOfTheSecondSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.SetCapacity(ec2test.SubnetA, false)
		r.world.Lose("RunInstances", 2) // the first of them is refused
		if _, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large")); err == nil {
			t.Fatal("the answer was not lost")
		}
		r.server.SetCapacity(ec2test.SubnetA, true)
		// What was not called, or was refused before it was looked at, says nothing of the earlier call.
		for _, code := range []string{"RequestLimitExceeded", "UnauthorizedOperation", "InternalError"} {
			r.world.Refuse("RunInstances", 1, &grouptest.Refusal{Status: map[bool]int{true: 500, false: 403}[code == "InternalError"], Code: code})
			for range 2 {
				if _, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large")); err == nil {
					break
				}
			}
			time.Sleep(5 * time.Second)
		}
		m := r.create(spec("a-1", "m7i.large"))
		if r.only().ID != m.ID {
			t.Errorf("the machine is %+v", m)
		}
	})
}

// If there are two of a name all the same, lists have one, and a deletion ends both.
func TestTwoInstancesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		first := r.create(spec("a-1", "m7i.large"))
		time.Sleep(time.Second)
		r.restart()
		r.server.SetCapacity(ec2test.SubnetA, false)
		two := spec("a-1", "m7i.large")
		two.Arguments = map[string]string{"subnets": ec2test.SubnetB}
		r.create(two)
		if in := r.list()["a-1"]; in.ID != first.ID || len(r.instances()) != 2 {
			t.Errorf("of %d instances the list has %+v", len(r.instances()), in)
		}
		if err := r.driver.Delete(t.Context(), first); err != nil {
			t.Error(err)
		}
		if left := r.instances(); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// EC2 keeps the parameters of a creation that it refused for want of capacity.
func TestEarlierCreationWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `{"imageID": "`+ec2test.ImageID+`", "subnets": ["`+ec2test.SubnetA+`"]}`)
		r.server.SetCapacity(ec2test.SubnetA, false)
		if _, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large")); err == nil {
			t.Fatal("there was capacity")
		}
		r.server.SetCapacity(ec2test.SubnetA, true)
		r.restart()
		other := spec("a-1", "m7i.large")
		other.UserData = "of a process that has another token"
		began := time.Now()
		for {
			_, err := r.driver.Create(t.Context(), other)
			if err == nil {
				break
			}
			if errdefs.IsPermanent(err) || time.Since(began) > 6*time.Minute {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Second)
		}
		if made := r.only(); made.UserData != other.UserData {
			t.Errorf("the user data are %q", made.UserData)
		}
	})
}

// Lists are answered from caches, of which one may be behind those that had a new instance already.
func TestListsThatLackANewInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		m := r.create(spec("a-1", "m7i.large"))
		if in := r.list()["a-1"]; in.State != machine.Running {
			t.Fatalf("it is %+v", in)
		}
		r.server.Omit(m.ID, 2)
		for range 2 {
			if in := r.list()["a-1"]; in.ID != m.ID || in.State != machine.Running {
				t.Errorf("in a list that lacks it it is %+v", in)
			}
		}
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Error(err)
		}
		if in := r.list()["a-1"]; in.State != machine.Ended {
			t.Errorf("after its deletion it is %+v", in)
		}
		r.server.Omit(m.ID, 1)
		if in, ok := r.list()["a-1"]; ok && in.State != machine.Ended {
			t.Errorf("in a list that lacks it after its end it is %+v", in)
		}
		if err := r.driver.Delete(t.Context(), m); err != nil {
			t.Errorf("a deletion of what has ended: %v", err)
		}
	})
}

func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.server.PageSize = 7
		for n := range 20 {
			r.create(spec(fmt.Sprintf("a-%d", n), "m7i.large"))
		}
		for key, value := range map[string]string{podgroup.TagClusterName: `hoXXmeY\`, podgroup.TagNodeName: "other"} {
			alien := spec("alien-"+value[:2], "m7i.large")
			alien.Tags[key] = value
			r.create(alien)
		}
		r.restart()
		before := r.world.Calls("DescribeInstances")
		if list := r.list(); len(list) != 20 {
			t.Errorf("the list has %d machines", len(list))
		}
		if calls := r.world.Calls("DescribeInstances") - before; calls != 3 {
			t.Errorf("it took %d calls", calls)
		}
		if calls := r.world.Calls("DescribeSpotInstanceRequests"); calls != 0 {
			t.Errorf("there were %d calls for spot instances, of which there are none", calls)
		}
		// A list that has a part alone is none.
		r.world.Refuse("DescribeInstances", 1, &grouptest.Refusal{Status: http.StatusServiceUnavailable, Code: "Unavailable", Message: "The server is overloaded."})
		if list, err := r.driver.List(t.Context(), nodeTags()); !errdefs.IsUnavailable(err) || list != nil {
			t.Errorf("the list is %v: %v", list, err)
		}
	})
}

// EC2 gives notice of the end of a spot instance in its request, and in nothing that instances have.
func TestSpotNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		m := r.create(spec("a-1", "cheap"))
		other := r.create(spec("b-1", "cheap"))
		if in := r.list()["a-1"]; !in.TakenAt.IsZero() {
			t.Errorf("before the notice it is taken at %v", in.TakenAt)
		}
		r.server.Interrupt(m.ID)
		at := time.Now().Add(2 * time.Minute)
		time.Sleep(10 * time.Second)
		list := r.list()
		if in := list["a-1"]; in.TakenAt.Sub(at).Abs() > time.Second || in.State != machine.Running {
			t.Errorf("the machine is %+v, taken at %v", in, at)
		}
		if in := list["b-1"]; !in.TakenAt.IsZero() {
			t.Errorf("another one is taken at %v", in.TakenAt)
		}
		// Without the right to read notices lists go on.
		r.world.Refuse("DescribeSpotInstanceRequests", 1, &grouptest.Refusal{Status: http.StatusForbidden, Code: "UnauthorizedOperation", Message: "You are not authorized."})
		if list := r.list(); len(list) != 2 {
			t.Errorf("without notices the list is %v", list)
		}
		time.Sleep(2 * time.Minute)
		if in := r.list()["a-1"]; in.State != machine.Ended {
			t.Errorf("it is %+v", in)
		}
		if text, err := r.driver.Console(t.Context(), m, 500); err != nil || !strings.Contains(text, "EC2: Server.SpotInstanceTermination") || !strings.Contains(text, "cannot reach the node") {
			t.Errorf("the console is %q: %v", text, err)
		}
		if err := r.driver.Delete(t.Context(), other); err != nil {
			t.Error(err)
		}
		if in := r.list()["b-1"]; !in.TakenAt.IsZero() {
			t.Errorf("a machine that was deleted is taken at %v", in.TakenAt)
		}
	})
}

// Who orders an interruption of the Fault Injection Service, to see what becomes of pods, sees that.
func TestSpotNoticeOfAnExperiment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		m := r.create(spec("a-1", "cheap"))
		r.server.InterruptAs(m.ID, "instance-terminated-by-experiment")
		if in := r.list()["a-1"]; in.TakenAt.IsZero() {
			t.Error("it is no notice")
		}
	})
}

func TestConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		for _, kind := range []string{"m7i.large", "old"} { // the latter is no instance of Nitro
			m := r.create(spec("a-"+kind[:1], kind))
			if text, err := r.driver.Console(t.Context(), m, 9); err != nil || text != "the node\n" {
				t.Errorf("the console of %s is %q: %v", kind, text, err)
			}
		}
		if text, err := r.driver.Console(t.Context(), machine.Machine{Name: "b-1"}, 9); err != nil || text != "" {
			t.Errorf("the console of a machine without an instance is %q: %v", text, err)
		}
	})
}

// Each error has the class that says what to do next.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		if _, err := r.driver.Create(t.Context(), spec("a-1", "none")); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "z9.huge") {
			t.Errorf("a type that is not there: %v", err)
		}
		for code, want := range map[string]struct {
			status          int
			permanent, late bool
			text            string
		}{
			"InvalidParameterValue":                             {400, true, false, ""},
			"AuthFailure.ServiceLinkedRoleCreationNotPermitted": {403, false, true, "aws iam create-service-linked-role"},
			"InvalidSecurity.RequestHasExpired":                 {400, false, true, "clock"},
			"InvalidAMIID.NotFound":                             {400, false, true, ""},
			"UnauthorizedOperation":                             {403, false, true, "lacks a right"},
			"RequestExpired":                                    {400, false, true, "clock"},
			"VcpuLimitExceeded":                                 {400, false, true, "Service Quotas"},
			"InstanceLimitExceeded":                             {400, false, true, "Service Quotas"},
			"InternalError":                                     {500, false, false, ""},
			"SomethingNew":                                      {400, false, true, ""},
			"InvalidClientTokenId":                              {403, false, true, "not valid"},
			"InvalidSubnetID.NotFound":                          {400, false, true, ""},
		} {
			r.world.Refuse("RunInstances", 1, &grouptest.Refusal{Status: want.status, Code: code, Message: "No. Encoded authorization failure message: xyzzy"})
			_, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large"))
			_, late := errdefs.RetryAfter(err)
			if err == nil || errdefs.IsPermanent(err) != want.permanent || late != want.late || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), code) {
				t.Errorf("%s is %v: permanent %v, with a delay %v", code, err, errdefs.IsPermanent(err), late)
			}
			if err != nil && (strings.Contains(err.Error(), "xyzzy") || strings.Contains(err.Error(), "token")) {
				t.Errorf("%s has too much: %v", code, err)
			}
		}
		if made := r.instances(); len(made) > 0 {
			t.Errorf("there are %d instances", len(made))
		}
	})
}

// What is wrong with the node's configuration, and not with the pod, fails no pod; the error says what to
// change.
func TestErrorsOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for field, want := range map[string]string{
			`, "instanceProfile": "new"`:  "Invalid IAM Instance Profile name",
			`, "rootDevice": "/dev/sda1"`: "the image has another root device than ec2.rootDevice",
		} {
			r := newRig(t, strings.Replace(usual, "}", field+"}", 1))
			_, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large"))
			if _, late := errdefs.RetryAfter(err); err == nil || errdefs.IsPermanent(err) || !late || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

// EC2 says of a clock that is wrong that the credentials are.
func TestErrorOfCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		for message, want := range map[string]bool{
			"AWS was not able to validate the provided access credentials": true,
			"Not authorized for images: [ami-0123456789abcdef0]":           false,
		} {
			r.world.Refuse("RunInstances", 1, &grouptest.Refusal{Status: http.StatusUnauthorized, Code: "AuthFailure", Message: message})
			_, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large"))
			if err == nil || strings.Contains(err.Error(), "clock") != want {
				t.Errorf("%s: %v", message, err)
			}
		}
	})
}

// After a refusal for the number of calls none is made for a while, and the while grows.
func TestThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.world.SetQuota("DescribeInstances", 0)
		for range 600 {
			if _, err := r.driver.List(t.Context(), nodeTags()); err == nil {
				t.Fatal("a call beyond the quota succeeds")
			}
			time.Sleep(time.Second)
		}
		if calls := r.world.Calls("DescribeInstances"); calls > 20 {
			t.Errorf("in ten minutes of refusals there were %d calls", calls)
		}
		r.create(spec("a-1", "m7i.large")) // other actions have quotas of their own
		r.world.SetQuota("DescribeInstances", 1000)
		time.Sleep(time.Minute)
		if list := r.list(); len(list) != 1 {
			t.Errorf("the list is %v", list)
		}
	})
}

// A burst of creations stays within what EC2 allows: five at once, and two a second.
func TestPaceOfCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.world.SetQuota("RunInstances", 65)
		began := time.Now()
		for n := range 60 {
			r.create(spec(fmt.Sprintf("a-%d", n), "m7i.large"))
		}
		if r.world.Refused() > 0 || time.Since(began) > 2*time.Minute {
			t.Errorf("%d calls were refused, and it took %v", r.world.Refused(), time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := r.driver.Create(ctx, spec("b-1", "m7i.large")); !errdefs.IsUnavailable(err) {
			t.Errorf("a call that has no time: %v", err)
		}
	})
}

// A call without an answer ends, and may have been made.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.world.Delay("RunInstances", 1, time.Hour)
		began := time.Now()
		_, err := r.driver.Create(t.Context(), spec("a-1", "m7i.large"))
		if !errdefs.IsUnavailable(err) || time.Since(began) > time.Minute || !strings.Contains(err.Error(), "has not answered") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := r.driver.Delete(t.Context(), machine.Machine{Name: "a-1", Tags: spec("a-1", "").Tags}); !errdefs.IsUnavailable(err) {
			t.Errorf("its deletion: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if err := r.driver.Delete(t.Context(), machine.Machine{Name: "a-1", Tags: spec("a-1", "").Tags}); err != nil {
			t.Errorf("its deletion, later: %v", err)
		}
	})
}

func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.account.Credentials = credentials.NewStaticCredentialsProvider(ec2test.AccessKey, "wrong", "")
		r.restart()
		if _, err := r.driver.List(t.Context(), nodeTags()); err == nil || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
			t.Errorf("with a wrong key: %v", err)
		}
		r.account.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("no role") })
		r.restart()
		if _, err := r.driver.List(t.Context(), nodeTags()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no role") {
			t.Errorf("without credentials: %v", err)
		}
		r.account.Region = ""
		if _, err := New(r.cfg, r.account); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "region") {
			t.Errorf("without a region: %v", err)
		}
	})
}

// What answers and is not EC2 is known by its answer.
func TestAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		for _, answer := range []string{"", "<html></html>", "<DescribeInstancesResponse>", "{}"} {
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
			r.account.HTTPClient = &http.Client{Transport: grouptest.Serve(t, handler).Transport(t)}
			r.restart()
			if list, err := r.driver.List(t.Context(), nodeTags()); !errdefs.IsUnavailable(err) {
				t.Errorf("%q: the list is %v: %v", answer, list, err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	parse := func(field, types string) error {
		text := `{cluster: home, stateDir: /state, bootstrap: {url: "https://10.0.0.5:10271"}, ec2: ` + field + types + `}`
		_, err := machine.ParseConfigWith([]byte(text), Check)
		return err
	}
	const types = `, types: [{name: m7i.large, cpu: 2, memory: 7Gi}]`
	if err := parse(usual, types); err != nil {
		t.Error(err)
	}
	for field, want := range map[string][]string{
		`{}`:           {"ec2.imageID: ", "ec2.subnets: "},
		`{imageId: x}`: {`ec2: unknown field "imageId"`},
		`{imageID: ami-1, subnets: [a], securityGroups: [b], region: moon, endpoint: x, rootDevice: xvda, volumeGiB: -1, tags: {"aws:x": "1", UID: "2", MachineName.2: "3", Reserve: "4"}}`: {
			"11 mistakes", "ec2.imageID: \"ami-1\"", "ec2.subnets: \"a\"", "ec2.securityGroups[0]: \"b\"", "ec2.region: \"moon\"", "ec2.endpoint", "ec2.rootDevice", "ec2.volumeGiB: -1", "ec2.tags[aws:x]", "ec2.tags[UID]", "ec2.tags[MachineName.2]", "ec2.tags[Reserve]",
		},
		`{imageID: 7}`: {"ec2.imageID"},
		`{script: "` + strings.Repeat("x", maxScript+1) + `"}`: {"ec2.script"},
	} {
		err := parse(field, types)
		if !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: %v", field, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v lacks %q", field, err, part)
			}
		}
	}
	if err := parse(usual, ""); err == nil || !strings.Contains(err.Error(), "types: the driver ec2 needs them") {
		t.Errorf("without types: %v", err)
	}
	err := parse(usual, `, types: [{name: small, cpu: 1, memory: 1Gi}, {name: gpu, cpu: 1, memory: 1Gi, arguments: {instanceType: "g5.xlarge, g6", rootDevice: sda, volumeGiB: big, spot: maybe, imageID: x, zone: b}}]`)
	for _, part := range []string{"types[0].name: \"small\"", "types[1].arguments.instanceType: \"g6\"", "types[1].arguments.rootDevice", "types[1].arguments.volumeGiB", "types[1].arguments.spot", "types[1].arguments.imageID", "types[1].arguments.zone"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if err := Check(machine.Config{}); err != nil {
		t.Errorf("without the field: %v", err)
	}
}

// README.md has each setting and each right, and shows a configuration that is one.
func TestReadmeIsComplete(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var shown strings.Builder
	for line := range strings.Lines(block) {
		shown.WriteString(strings.TrimPrefix(line, "   "))
	}
	if c, err := machine.ParseConfigWith([]byte(shown.String()), Check); err != nil || len(c.EC2) == 0 {
		t.Errorf("its configuration: %v:\n%s", err, shown.String())
	}
	for _, name := range []string{"region", "endpoint", "imageID", "rootDevice", "script", "subnets", "securityGroups", "publicAddress", "spot", "volumeGiB", "instanceProfile", "keyName", "tags"} {
		if !strings.Contains(string(text), "| `"+name+"`") {
			t.Errorf("README.md has no row for %s", name)
		}
	}
	for _, a := range []action{runInstances, describeInstances, describeSpot, terminate, consoleOutput} {
		if !strings.Contains(string(text), "ec2:"+string(a)) {
			t.Errorf("the policy of README.md lacks %s", a)
		}
	}
}
