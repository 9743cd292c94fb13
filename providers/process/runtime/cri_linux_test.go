package runtime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

func TestSandboxes(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.NodeIPs = []string{"192.0.2.7", "2001:db8::7"} })
	config := sandboxConfig(n.cfg.Root)
	config.Annotations = map[string]string{"a": "b"}
	id, err := n.RunPodSandbox(ctx, config, "process")
	must(t, err)
	if _, err := n.RunPodSandbox(ctx, config, ""); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same again: %v", err)
	}
	if _, err := n.RunPodSandbox(ctx, sandboxConfig(n.cfg.Root), "runc"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another handler: %v", err)
	}
	running := n.start(sh("exec sleep 1000"))
	inIt, err := n.CreateContainer(ctx, id, sh("exec sleep 1000"), config)
	must(t, err)
	must(t, n.StartContainer(ctx, inIt))
	for range 2 {
		response, err := n.PodSandboxStatus(ctx, id, true)
		must(t, err)
		s := response.Status
		if s.State != runtimeapi.PodSandboxState_SANDBOX_READY || s.Network.Ip != "192.0.2.7" || s.Network.AdditionalIps[0].Ip != "2001:db8::7" ||
			!proto.Equal(s.Metadata, config.Metadata) || s.Annotations["a"] != "b" || s.RuntimeHandler != "process" || len(response.ContainersStatuses) != 1 {
			t.Errorf("%v", response)
		}
		n.reopen()
	}
	for range 2 {
		must(t, n.StopPodSandbox(ctx, id))
	}
	if s := n.status(inIt); s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("%v", s)
	}
	if s := n.status(running); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("another pod's: %v", s)
	}
	if _, err := n.CreateContainer(ctx, id, sh("true"), config); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a container in a stopped sandbox: %v", err)
	}
	n.reopen()
	notReady := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}
	list, err := n.ListPodSandbox(ctx, notReady)
	must(t, err)
	if len(list) != 1 || list[0].Id != id {
		t.Errorf("%v", list)
	}
	list, err = n.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: config.Labels})
	must(t, err)
	if len(list) != 1 {
		t.Errorf("%v", list)
	}
	for range 2 {
		must(t, n.RemovePodSandbox(ctx, id))
		must(t, n.StopPodSandbox(ctx, id))
	}
	if _, err := n.PodSandboxStatus(ctx, id, false); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := n.ContainerStatus(ctx, inIt, false); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := n.RunPodSandbox(ctx, config, ""); err != nil {
		t.Errorf("its name is taken: %v", err)
	}
}

func TestContainerLists(t *testing.T) {
	n := newNode(t)
	box, boxConfig := n.sandbox()
	config := sh("exec sleep 1000")
	id, err := n.CreateContainer(ctx, box, config, boxConfig)
	must(t, err)
	if _, err := n.CreateContainer(ctx, box, config, boxConfig); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name again: %v", err)
	}
	other := n.start(sh("exec sleep 1000"))
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	for name, test := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"all":     {nil, []string{other, id}},
		"id":      {&runtimeapi.ContainerFilter{Id: id}, []string{id}},
		"sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: box}, []string{id}},
		"labels":  {&runtimeapi.ContainerFilter{LabelSelector: config.Labels}, []string{id}},
		"running": {&runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)}, []string{other}},
		"none":    {&runtimeapi.ContainerFilter{Id: id, State: state(runtimeapi.ContainerState_CONTAINER_EXITED)}, nil},
	} {
		list, err := n.ListContainers(ctx, test.filter)
		must(t, err)
		var got []string
		for _, c := range list {
			got = append(got, c.Id)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Events are sent at once, and in order.
func TestEvents(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		events := make(chan *runtimeapi.ContainerEventResponse)
		listening, cancel := context.WithCancel(ctx)
		done, ready := make(chan error), make(chan struct{})
		go func() {
			done <- n.GetContainerEvents(listening, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
		}()
		<-ready
		box, boxConfig := n.sandbox()
		next := func() *runtimeapi.ContainerEventResponse {
			t.Helper()
			select {
			case e := <-events:
				return e
			case <-time.After(time.Minute):
				t.Fatal("no event")
			}
			return nil
		}
		expect := func(id string, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
			t.Helper()
			e := next()
			if e.ContainerId != id || e.ContainerEventType != kind || e.PodSandboxStatus.Id != box {
				t.Errorf("got %v of %s, want %v of %s", e.ContainerEventType, e.ContainerId, kind, id)
			}
			return e
		}
		expect(box, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
		expect(box, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		id, err := n.CreateContainer(ctx, box, sh("sleep 0.2; exit 3"), boxConfig)
		must(t, err)
		go func() { _ = n.StartContainer(ctx, id) }()
		expect(id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
		expect(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		e := expect(id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		if late := time.Since(time.Unix(0, e.ContainersStatuses[0].FinishedAt)); late > time.Minute {
			t.Errorf("sent after %s", late)
		}
		if s := e.ContainersStatuses[0]; s.ExitCode != 3 || s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("%v", s)
		}
		go func() { _ = n.RemovePodSandbox(ctx, box) }()
		expect(box, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		expect(id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		expect(box, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
	})
}

func TestStats(t *testing.T) {
	for _, cgroups := range []bool{true, false} {
		t.Run(fmt.Sprintf("cgroups=%v", cgroups), func(t *testing.T) {
			n := newNode(t, func(c *runtime.Config) {
				if !cgroups {
					c.CgroupParent = runtime.CgroupsNone
				}
			})
			// The first half burns in processes that end, the second in one that stays.
			id := n.start(sh(`for i in 1 2 3; do sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; done; echo ready; while :; do :; done`))
			n.waitLog(id, "ready")
			s, err := n.ContainerStats(ctx, id)
			must(t, err)
			if cpu := time.Duration(s.Cpu.UsageCoreNanoSeconds.Value); cpu < 20*time.Millisecond {
				t.Errorf("CPU %s", cpu)
			}
			if s.Memory.WorkingSetBytes.Value == 0 || s.Memory.RssBytes.Value == 0 || s.Attributes.Id != id || s.Cpu.UsageNanoCores.Value == 0 {
				t.Errorf("%v", s)
			}
			time.Sleep(1100 * time.Millisecond)
			pod, err := n.PodSandboxStats(ctx, n.sandboxOf(id))
			must(t, err)
			if cores := pod.Linux.Cpu.UsageNanoCores.Value; cores < 2e7 || cores > 1.5e9 {
				t.Errorf("%d nanocores", cores)
			}
			if pod.Linux.Process.ProcessCount.Value != 1 || len(pod.Linux.Containers) != 1 {
				t.Errorf("%v", pod.Linux)
			}
			n.create(sh("true"))
			all, err := n.ListContainerStats(ctx, nil)
			must(t, err)
			pods, err := n.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{Id: n.sandboxOf(id)})
			must(t, err)
			if len(all) != 1 || len(pods) != 1 {
				t.Errorf("%v, %v", all, pods)
			}
			must(t, n.StopContainer(ctx, id, 0))
			if s, err := n.ContainerStats(ctx, id); err != nil || s.Cpu.Timestamp == 0 {
				t.Errorf("of one that has ended: %v, %v", s, err)
			}
		})
	}
}

// A limit has its effect, or a warning says that it has none.
func TestMemoryLimit(t *testing.T) {
	n := newNode(t)
	logged := n.reopenLogged()
	config := sh("x=0123456789; while [ ${#x} -lt 100000000 ]; do x=$x$x; done; exit 7")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, CpuShares: 512}}
	id := n.create(config)
	must(t, n.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}}))
	if res := n.status(id).Resources.Linux; res.MemoryLimitInBytes != 48<<20 || res.CpuShares != 512 {
		t.Errorf("%v", res)
	}
	must(t, n.StartContainer(ctx, id))
	s := n.ended(id)
	warned := strings.Contains(logged.String(), "limit=memory")
	if !warned && (s.Reason != "OOMKilled" || s.ExitCode != 137) || warned && s.ExitCode != 7 {
		t.Errorf("%v\n%s", s, logged)
	}
}

// Memory that is limited is not swapped, also when the limit changes; swap that was asked
// for stays.
func TestSwap(t *testing.T) {
	n := newNode(t)
	update := func(id string, memory int64) {
		t.Helper()
		must(t, n.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory}}))
	}
	start := func(swap int64) string {
		config := sh("exec sleep 1000")
		config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: swap}}
		return n.start(config)
	}
	// What is there depends on the machine.
	check := func(id, unified, v1 string) {
		t.Helper()
		for name, want := range map[string]string{"memory.swap.max": unified, "memory.memsw.limit_in_bytes": v1} {
			for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
				files, _ := filepath.Glob(filepath.Join(mount, n.cfg.CgroupParent, id, name))
				for _, path := range files {
					if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != want && want != "" {
						t.Errorf("%s is %q, want %s (%v)", path, got, want, err)
					}
				}
			}
		}
	}
	id := start(0)
	check(id, "0", "67108864")
	update(id, 128<<20)
	check(id, "0", "134217728")
	update(id, 32<<20)
	check(id, "0", "33554432")
	id = start(96 << 20)
	update(id, 48<<20)
	check(id, "50331648", "")
}

// Where nothing enforces a limit, a container that has one is refused.
func TestLimitsThatCannotBeAppliedRefuseTheContainer(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.CgroupParent, c.AllowUnenforcedLimits = runtime.CgroupsNone, false })
	box, _ := n.sandbox()
	config := sh("exit 7")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, CpuShares: 512}}
	if _, err := n.CreateContainer(ctx, box, config, nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "memory") || !strings.Contains(err.Error(), "allowUnenforcedLimits") {
		t.Errorf("%v", err)
	}
	config.Linux.Resources.MemoryLimitInBytes = 0
	id := n.start(config)
	update := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuQuota: 1000}}
	if err := n.UpdateContainerResources(ctx, id, update); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "cpu") {
		t.Errorf("an update: %v", err)
	}
}

// Where nothing enforces limits, and the operator allows that, it is logged once for
// each kind.
func TestLimitsWithoutControlGroups(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.CgroupParent = runtime.CgroupsNone })
	logged := n.reopenLogged()
	config := sh("exit 7")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512}}
	n.ended(n.start(config))
	if strings.Contains(logged.String(), "limit=") {
		t.Errorf("shares are no limit, and it says:\n%s", logged)
	}
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, CpuQuota: 1000}
	for range 2 {
		config.Metadata.Attempt++
		if s := n.ended(n.start(config)); s.ExitCode != 7 {
			t.Errorf("%v", s)
		}
	}
	for _, limit := range []string{"limit=memory", "limit=cpu"} {
		if count := strings.Count(logged.String(), limit); count != 1 {
			t.Errorf("%s is logged %d times:\n%s", limit, count, logged)
		}
	}
}

func TestImages(t *testing.T) {
	n := newNode(t)
	const name = "registry.example.com/a/b:v1"
	spec := &runtimeapi.ImageSpec{Image: name}
	if s, err := n.ImageStatus(ctx, spec, false); err != nil || s.Image != nil {
		t.Errorf("%v, %v", s, err)
	}
	for range 2 {
		ref, err := n.PullImage(ctx, spec, nil, nil)
		if ref != name || err != nil {
			t.Errorf("%q, %v", ref, err)
		}
	}
	n.reopen()
	s, err := n.ImageStatus(ctx, spec, false)
	must(t, err)
	if s.Image.GetId() != name || s.Image.GetSize() != 0 || s.Image.GetUid().GetValue() == 0 {
		t.Errorf("%v", s)
	}
	if list, err := n.ListImages(ctx, nil); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := n.ListImages(ctx, &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: "other"}}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	for range 2 {
		must(t, n.RemoveImage(ctx, spec))
	}
	if list, err := n.ListImages(ctx, nil); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	info, err := n.ImageFsInfo(ctx)
	must(t, err)
	if fs := info.ImageFilesystems[0]; fs.UsedBytes.Value == 0 || fs.FsId.Mountpoint != n.cfg.Root {
		t.Errorf("%v", fs)
	}
}

func TestInfo(t *testing.T) {
	n := newNode(t)
	version, err := n.Version(ctx, "v1")
	if err != nil || version.RuntimeName != "process" || version.RuntimeApiVersion != "v1" {
		t.Errorf("%v, %v", version, err)
	}
	s, err := n.Status(ctx, true)
	must(t, err)
	for _, c := range s.Status.Conditions {
		if !c.Status {
			t.Errorf("%v", c)
		}
	}
	if strict := s.Features.SupplementalGroupsPolicy; strict != (os.Geteuid() == 0) {
		t.Errorf("strict groups: %v", strict)
	}
	if err := n.CheckpointContainer(ctx, nil); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	must(t, n.UpdateRuntimeConfig(ctx, nil))
	if _, err := n.RuntimeConfig(ctx); err != nil {
		t.Error(err)
	}
	must(t, n.Close(ctx))
	must(t, n.Close(ctx))
	if _, err := n.RunPodSandbox(ctx, sandboxConfig(n.cfg.Root), ""); status.Code(err) != codes.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	n.open()
}
