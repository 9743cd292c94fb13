package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// parts are the programs of Debian that images are made of, by package.
var parts = map[string]string{
	"/bin/busybox":     "busybox-static",
	"/bin/bash-static": "bash-static",
	"/usr/bin/curl":    "curl",
	"/usr/bin/dig":     "bind9-dnsutils",
	"/bin/nc.openbsd":  "netcat-openbsd",
	"/bin/hostname":    "hostname",
	"/bin/ip":          "iproute2",
	"/bin/ss":          "iproute2",
}

// checkInstalled says what the machine lacks.
func checkInstalled() error {
	var missing []string
	for file, pkg := range parts {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		names := strings.Join(missing, " ")
		return fmt.Errorf("make images: these packages are not installed: %s: run \"make container-tools\", or apt-get install --no-install-recommends %s", names, names)
	}
	if out, err := exec.Command("ldd", "/bin/busybox").CombinedOutput(); err == nil && !strings.Contains(string(out), "not a dynamic") {
		return errors.New("make images: /bin/busybox is not static: install busybox-static, which replaces busybox")
	}
	return nil
}

// base is what every image begins with: busybox, laid out as its own image is.
func (s sources) base() (tree, error) {
	t := tree{}
	for _, name := range []string{"bin", "dev", "etc", "home", "lib", "lib64", "proc", "sys", "usr", "usr/local", "usr/local/bin", "var", "var/log"} {
		t.dir(name, 0o755)
	}
	t.dir("root", 0o700)
	for _, name := range []string{"tmp", "var/tmp"} {
		t.dir(name, 0o1777)
	}
	for _, name := range []string{"sbin", "usr/bin", "usr/sbin"} {
		t.link(name, "/bin")
	}
	t.text("etc/nsswitch.conf", "hosts: files dns\n")
	t.text("etc/passwd", passwd)
	t.text("etc/group", group)

	t.file("bin/busybox", "/bin/busybox", 0o755)
	out, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list busybox's programs: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if name != "busybox" {
			t.link("bin/"+name, "/bin/busybox")
		}
	}
	t.file("bin/bash", "/bin/bash-static", 0o755)
	t.file("bin/sh", s.program("sh"), 0o755)
	return t, nil
}

const passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`

const group = `root:x:0:
daemon:x:1:
nogroup:x:65534:
`

// programs are programs of Debian with the libraries that they are linked to.
func programs(sources map[string]string) (tree, error) {
	t := tree{}
	for name, source := range sources {
		t.file(name, source, 0o755)
		out, err := exec.Command("ldd", source).Output()
		if err != nil {
			return nil, fmt.Errorf("list the libraries of %s: %w", source, err)
		}
		for line := range strings.Lines(string(out)) {
			// "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", or the
			// loader's path alone, or the kernel's library, which is no file.
			if _, after, ok := strings.Cut(line, "=>"); ok {
				line = after
			}
			fields := strings.Fields(line)
			if len(fields) > 0 && filepath.IsAbs(fields[0]) {
				t.file(fields[0], fields[0], 0o755)
			}
		}
	}
	return t, nil
}
