package runtime_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// secured is a configuration with a security context.
func secured(sc *runtimeapi.LinuxContainerSecurityContext) *runtimeapi.ContainerConfig {
	config := sh("id -u; id -g; id -G")
	if sc.NamespaceOptions == nil {
		sc.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	}
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: sc}
	return config
}

func number(v int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: v} }

// What is not allowed is denied, with the field that would allow it.
func TestDefaultsDeny(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		box, boxConfig := n.sandbox()
		with := func(f func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
			c := sh("true")
			f(c)
			return c
		}
		type sc = runtimeapi.LinuxContainerSecurityContext
		for name, test := range map[string]struct {
			config *runtimeapi.ContainerConfig
			code   codes.Code
			says   string
		}{
			"root":         {secured(&sc{RunAsUser: number(0)}), codes.PermissionDenied, "users"},
			"other user":   {secured(&sc{RunAsUser: number(1234)}), codes.PermissionDenied, "users"},
			"other group":  {secured(&sc{RunAsUser: number(4321), RunAsGroup: number(0)}), codes.PermissionDenied, "groups"},
			"only a group": {secured(&sc{RunAsGroup: number(65534)}), codes.InvalidArgument, "runAsUser"},
			"fsGroup":      {secured(&sc{SupplementalGroups: []int64{0}}), codes.PermissionDenied, "groups"},
			"no such user": {secured(&sc{RunAsUsername: "vk-no-such-user"}), codes.InvalidArgument, "vk-no-such-user"},
			"negative":     {secured(&sc{RunAsUser: number(-1)}), codes.InvalidArgument, "-1"},
			"privileged":   {secured(&sc{Privileged: true}), codes.PermissionDenied, "allowPrivileged"},
			"seccomp": {secured(&sc{Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}}),
				codes.InvalidArgument, "/p"},
			"host path": {with(func(c *runtimeapi.ContainerConfig) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: "/etc"}}
			}), codes.PermissionDenied, "hostPaths"},
			"no such path": {with(func(c *runtimeapi.ContainerConfig) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: n.cfg.VolumeDirs[0] + "/no"}}
			}), codes.InvalidArgument, "/x"},
			"up": {with(func(c *runtimeapi.ContainerConfig) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: n.volume() + "/../../../../../../../../../etc"}}
			}), codes.PermissionDenied, "hostPaths"},
			"mount at /": {with(func(c *runtimeapi.ContainerConfig) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/", HostPath: n.volume()}}
			}), codes.InvalidArgument, `"/"`},
			"bidirectional": {with(func(c *runtimeapi.ContainerConfig) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: n.volume(), Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
			}), codes.InvalidArgument, "/x"},
			"binary": {containerConfig("/proc/self/exe"), codes.PermissionDenied, "binaries"},
			"no command": {with(func(c *runtimeapi.ContainerConfig) { c.Command = nil }),
				codes.InvalidArgument, "example.com/app:v1"},
			"working dir": {with(func(c *runtimeapi.ContainerConfig) { c.WorkingDir = "/etc" }), codes.PermissionDenied, "workingDirs"},
			"device": {with(func(c *runtimeapi.ContainerConfig) { c.Devices = []*runtimeapi.Device{{HostPath: "/dev/null"}} }),
				codes.InvalidArgument, "device"},
		} {
			_, err := n.CreateContainer(ctx, box, test.config, boxConfig)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ids := n.ids(); len(ids) > 0 {
			t.Errorf("there are containers: %v", ids)
		}
	}, func(c *runtime.Config) { c.Users = []string{"4321"} })
}

// A program that a pod brings along in a volume is no program of the machine, even
// if it is called as one.
func TestBinariesInVolumesAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	dir := n.volume("sh", "#!/bin/bash\necho evil\n", "new", "#!/bin/bash\necho evil\n")
	for _, name := range []string{"sh", "new"} {
		must(t, os.Chmod(dir+"/"+name, 0o755))
	}
	box, _ := n.sandbox()
	for _, command := range []string{"/usr/local/bin/sh", "/usr/local/bin/new", "new"} {
		config := containerConfig(command)
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/usr/local/bin", HostPath: dir}}
		if _, err := n.CreateContainer(ctx, box, config, nil); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestUsersAsRoot(t *testing.T) {
	asRoot(t)
	each(t, func(t *testing.T, n *node) {
		type sc = runtimeapi.LinuxContainerSecurityContext
		for name, test := range map[string]struct {
			sc   *sc
			want string
		}{
			"default":     {&sc{}, "POD\nPOD\nPOD\n"},
			"allowed":     {&sc{RunAsUser: number(12345)}, "12345\nPOD\nPOD\n"},
			"with groups": {&sc{RunAsUser: number(12346), RunAsGroup: number(5000), SupplementalGroups: []int64{5001}}, "12346\n5000\n5000 5001ALSO\n"},
			"root":        {&sc{RunAsUser: number(0), RunAsGroup: number(0)}, "0\n0\n0ALSO\n"},
			"name":        {&sc{RunAsUsername: "nobody"}, "65534\n65534\n65534ALSO\n"},
		} {
			// Without isolation the pod's group lets all of its users to its volumes.
			also := ""
			if n.cfg.Isolation == runtime.IsolationNone {
				also = " POD"
			}
			want := strings.ReplaceAll(strings.ReplaceAll(test.want, "ALSO", also), "POD", "20000[0-9]{5}")
			if got := n.outputOf(secured(test.sc)); !regexp.MustCompile("^" + want + "$").MatchString(got) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
	}, func(c *runtime.Config) {
		c.Users, c.Groups = []string{"0", "12345-12346", "65534"}, []string{"0", "5000-5001", "65534"}
	})
}

// Setuid programs have no effect, and root has few rights.
func TestPrivilegesAsRoot(t *testing.T) {
	asRoot(t)
	each(t, func(t *testing.T, n *node) {
		status := `while read name value; do case $name in NoNewPrivs:|CapEff:|CapBnd:) echo $name $value;; esac; done < /proc/self/status`
		config := secured(&runtimeapi.LinuxContainerSecurityContext{RunAsUser: number(0)})
		config.Command[2] = status
		if got, want := n.outputOf(config), "CapEff: 00000000200025fb\nCapBnd: 00000000200025fb\nNoNewPrivs: 1\n"; got != want {
			t.Errorf("root: %q", got)
		}
		config = secured(&runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: number(0), Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN", "CHOWN"}},
		})
		config.Command[2] = status
		if got, want := n.outputOf(config), "CapEff: 0000000000001001\nCapBnd: 0000000000001001\nNoNewPrivs: 1\n"; got != want {
			t.Errorf("root with few rights: %q", got)
		}
		config = sh(status)
		if got, want := n.outputOf(config), "CapEff: 0000000000000000\nCapBnd: 00000000200025fb\nNoNewPrivs: 1\n"; got != want {
			t.Errorf("nobody: %q", got)
		}
	}, func(c *runtime.Config) { c.Users, c.Capabilities = []string{"0"}, []string{"CAP_NET_ADMIN"} })
}

func TestRlimitsAndEnvironment(t *testing.T) {
	t.Setenv("VK_TEST_PASSED", "passed")
	t.Setenv("VK_TEST_SECRET", "secret")
	n := newNode(t, func(c *runtime.Config) {
		c.Rlimits = map[string]runtime.Rlimit{"nofile": {Soft: 123, Hard: 456}, "core": {}}
		c.Environment = []string{"VK_TEST_PASSED"}
		c.CgroupParent = runtime.CgroupsNone
	})
	config := sh(`ulimit -Sn; ulimit -Hn; ulimit -c; echo $VK_TEST_PASSED,$VK_TEST_SECRET,$A,$HOSTNAME,${HOME:+home}; trap`)
	config.Envs = []*runtimeapi.KeyValue{{Key: "A", Value: []byte("a b")}, {Key: "VIRTUAL_KUBELET_CONTAINER_ID", Value: []byte("x")}}
	box, boxConfig := n.sandbox()
	id, err := n.CreateContainer(ctx, box, config, boxConfig)
	must(t, err)
	must(t, n.StartContainer(ctx, id))
	n.ended(id)
	if got, _ := n.logs(id); got != "123\n456\n0\npassed,,a b,"+boxConfig.Hostname+",home\n" {
		t.Errorf("%q", got)
	}
}

func TestBadConfigs(t *testing.T) {
	root := tempDir(t)
	for says, cfg := range map[string]runtime.Config{
		"root must be":   {Root: "relative"},
		"isolation":      {Root: root, Isolation: "some"},
		"binaries":       {Root: root, Binaries: []string{"bin/*"}},
		"hostPaths":      {Root: root, HostPaths: []string{"/[", "/a"}},
		"users":          {Root: root, Users: []string{"root"}},
		"is less than":   {Root: root, Groups: []string{"20-10"}},
		"4294967294":     {Root: root, Users: []string{"4294967295"}},
		"defaultUser":    {Root: root, DefaultUser: "me"},
		"podUsers":       {Root: root, PodUsers: "many"},
		"nofiles":        {Root: root, Rlimits: map[string]runtime.Rlimit{"nofiles": {}}},
		"above the hard": {Root: root, Rlimits: map[string]runtime.Rlimit{"nofile": {Soft: -1, Hard: 1}}},
		"capabilities":   {Root: root, Capabilities: []string{"NET_ADMIN", "FLY"}},
		"streamAddress":  {Root: root, StreamAddress: "256.0.0.1:1"},
	} {
		if r, err := newRuntime(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
			if err == nil {
				_ = r.Close(ctx)
			}
		}
	}
}

func TestMaxContainers(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.MaxContainers = 2 })
	first := n.start(sh("exec sleep 1000"))
	n.create(sh("true"))
	box, _ := n.sandbox()
	if _, err := n.CreateContainer(ctx, box, sh("true"), nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	must(t, n.StopContainer(ctx, first, 0))
	n.create(sh("true"))
}
