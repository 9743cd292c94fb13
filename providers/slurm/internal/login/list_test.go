package login

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A list shows all pods, or fails: for what is the user's and cannot be read, and not for what others
// have there, or what goes meanwhile.
func TestLists(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root makes directories of others: run this test as root")
	}
	const state, shown = "job 7\n", "./one/state:job 7\n"
	type at struct {
		*place
		root string
	}
	do := func(p at, err error) {
		p.Helper()
		if err != nil {
			p.Fatal(err)
		}
	}
	// A command that prints something else, or does something more.
	wrap := func(p at, name, script string) {
		p.write(filepath.Join(p.home, "bin", name), "#!/bin/sh\n"+script+"\n")
	}
	two := func(p at) string { return filepath.Join(p.root, "two") }
	for name, c := range map[string]struct {
		prepare func(p at)
		want    string
		fails   bool
	}{
		"one pod":                              {prepare: func(at) {}, want: shown},
		"no pods":                              {prepare: func(p at) { do(p, os.RemoveAll(p.dir)) }},
		"no directory at all":                  {prepare: func(p at) { do(p, os.RemoveAll(p.root)) }, want: "missing\n"},
		"a parent is missing":                  {prepare: func(p at) { do(p, os.Rename(p.home+"/of/pods", p.home+"/elsewhere")); do(p, os.Remove(p.home+"/of")) }, want: "missing\n"},
		"a parent is no longer one":            {prepare: func(p at) { do(p, os.RemoveAll(p.home+"/of")); p.write(p.home+"/of", "") }, fails: true},
		"a parent is not to be entered":        {prepare: func(p at) { do(p, os.Chmod(p.home+"/of", 0)) }, fails: true},
		"it is unreadable":                     {prepare: func(p at) { do(p, os.Chmod(p.root, 0o300)) }, fails: true},
		"it is not to be entered":              {prepare: func(p at) { do(p, os.Chmod(p.root, 0o600)) }, fails: true},
		"it is another user's":                 {prepare: func(p at) { do(p, os.Chown(p.root, 12345, 12345)); do(p, os.Chmod(p.root, 0o777)) }, want: shown},
		"squeue fails":                         {prepare: func(p at) { wrap(p, "squeue", "exit 1") }, fails: true},
		"its entries are not shown to the end": {prepare: func(p at) { wrap(p, "ls", `/usr/bin/ls "$@"; [ "$1" = -d ]`) }, fails: true},
		"no command to read":                   {prepare: func(p at) { wrap(p, "xargs", "exit 127") }, fails: true},

		"a pod that is begun":                 {prepare: func(p at) { do(p, os.Mkdir(two(p), 0o700)) }, want: shown},
		"a state that is begun":               {prepare: func(p at) { p.write(two(p)+"/state", "") }, want: shown},
		"a link to a pod":                     {prepare: func(p at) { do(p, os.Symlink("one", two(p))) }, want: shown},
		"a file":                              {prepare: func(p at) { p.write(p.root+"/-README (1)", "") }, want: shown},
		"a directory in place of a state":     {prepare: func(p at) { do(p, os.MkdirAll(two(p)+"/state", 0o700)) }, want: shown},
		"a hidden pod, whose name has spaces": {prepare: func(p at) { do(p, os.Rename(p.dir, p.root+"/. a  b ")) }, want: "./. a  b /state:job 7\n"},

		"a pod that is not to be entered":   {prepare: func(p at) { p.write(two(p)+"/state", state); do(p, os.Chmod(two(p), 0)) }, fails: true},
		"a pod whose entries are not shown": {prepare: func(p at) { do(p, os.Chmod(p.dir, 0o300)) }, want: shown},
		"a state that is unreadable":        {prepare: func(p at) { p.write(two(p)+"/state", state); do(p, os.Chmod(two(p)+"/state", 0)) }, fails: true},
		"a state that cannot be read": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			wrap(p, "grep", `/usr/bin/grep "$@"; echo "grep: ./two/state: Input/output error" >&2; exit 2`)
		}, fails: true},
		"a pod of which nothing is known": {prepare: func(p at) {
			wrap(p, "ls", `[ "$2" = ./two/state ] && echo "ls: cannot access './two/state': Input/output error" >&2 && exit 2; /usr/bin/ls "$@" && echo two`)
			wrap(p, "grep", `/usr/bin/grep "$@"; echo "grep: ./two/state: Input/output error" >&2; exit 2`)
		}, fails: true},

		"another user's directory": {prepare: func(p at) {
			p.write(p.root+"/lost+found/state", state)
			do(p, os.Chmod(p.root+"/lost+found", 0o700))
			do(p, os.Chown(p.root+"/lost+found", 12345, 12345))
		}, want: shown},
		"another user's pod": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			do(p, os.Chown(two(p)+"/state", 12345, 12345))
			do(p, os.Chown(two(p), 12345, 12345))
			do(p, os.Chmod(two(p), 0o755))
			do(p, os.Chmod(two(p)+"/state", 0))
		}, want: shown},
		"another user's pod that cannot be read": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			do(p, os.Chown(two(p), 12345, 12345))
			wrap(p, "grep", `/usr/bin/grep "$@"; echo "grep: ./two/state: Input/output error" >&2; exit 2`)
		}, want: shown},
		"another user's pod that can be read": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			do(p, os.Chmod(two(p), 0o755))
			do(p, os.Chmod(two(p)+"/state", 0o644))
			do(p, os.Chown(two(p), 12345, 12345))
		}, want: shown + "./two/state:job 7\n"},
		"another user's file system": {prepare: func(p at) { // it does not show its owner
			wrap(p, "ls", `[ "$2" = ./two/state ] && echo "ls: cannot access './two/state': Permission denied" >&2 && exit 2; /usr/bin/ls "$@"; [ "$1" = -d ] || echo two`)
			wrap(p, "grep", `/usr/bin/grep "$@"; echo "grep: ./two/state: Permission denied" >&2; exit 2`)
		}, want: shown},
		"another user's file": {prepare: func(p at) { p.write(p.root+"/file", ""); do(p, os.Chown(p.root+"/file", 12345, 12345)) }, want: shown},

		"a pod that goes meanwhile": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			wrap(p, "ls", `/usr/bin/ls "$@" && rm -rf two`)
		}, want: shown},
		"a pod that goes while it is read": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			wrap(p, "grep", `rm -rf two; /usr/bin/grep -s "$@"; echo "grep: ./two/state: Stale file handle" >&2; exit 2`)
		}, want: shown},
		"a state that goes while it is read": {prepare: func(p at) {
			p.write(two(p)+"/state", state)
			wrap(p, "grep", `rm two/state; /usr/bin/grep -s "$@"; echo "grep: ./two/state: Stale file handle" >&2; exit 2`)
		}, want: shown},
	} {
		t.Run(name, func(t *testing.T) {
			p := at{place: newPlace(t, "", 0)}
			p.root = filepath.Join(p.home, "of", "pods")
			p.dir = filepath.Join(p.root, "one")
			p.write(filepath.Join(p.dir, "state"), state)
			c.prepare(p)
			p.withoutPrivileges()
			var out strings.Builder
			err := p.shell.Run(t.Context(), Command{Verb: "list", Args: []string{p.root}, Stdout: &out})
			if _, got, _ := strings.Cut(out.String(), "\n"); (err != nil) != c.fails || !c.fails && got != c.want {
				t.Errorf("the list is %q, error %v", out.String(), err)
			}
		})
	}
}

// A thousand pods are more than one command line may hold on some machines.
func TestListOfManyPods(t *testing.T) {
	p := newPlace(t, "", 0)
	root := filepath.Dir(p.dir)
	const pods = 1000
	for i := range pods {
		p.write(filepath.Join(root, strings.Repeat("x", 200)+strings.Repeat("y", i%50)+string(rune('a'+i/50)), "state"), "job 7\n")
	}
	var out strings.Builder
	if err := p.shell.Run(t.Context(), Command{Verb: "list", Args: []string{root}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "/state:job 7\n"); got != pods {
		t.Errorf("the list has %d pods", got)
	}
}

// A creation does not make the directory of all pods: its file system may not be mounted.
func TestCreationWithoutADirectory(t *testing.T) {
	p := newPlace(t, "", 0)
	p.stdin = staged(t)
	root := filepath.Dir(p.dir)
	if err := p.run("create", p.dir, "--mem=1"); err == nil || p.calls() != "" || isLeft(root) {
		t.Errorf("the creation returns %v", err)
	}
	if err := p.run("setup", root); err != nil {
		t.Fatal(err)
	}
	if err := p.run("create", p.dir, "--mem=1"); err != nil || p.calls() == "" {
		t.Errorf("the creation returns %v", err)
	}
}
