package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/ptr"
)

func text(data string) File { return File{Data: []byte(data), Mode: DefaultMode} }

// read returns what is in a directory of Files, as users see it and behind
// ..data, which must be the same.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen, behind := walk(t, dir), walkOne(t, filepath.Join(dir, dataLink))
	if !maps.Equal(seen, behind) {
		t.Errorf("users see %v, behind %s is %v", seen, dataLink, behind)
	}
	return seen
}

// walk reads what users see.
func walk(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if isOwn(entry.Name()) {
			continue
		}
		for name, data := range walkOne(t, filepath.Join(dir, entry.Name())) {
			found[strings.TrimSuffix(entry.Name()+"/"+name, "/.")] = data
		}
	}
	return found
}

// walkOne reads all below a link; "." is the file itself.
func walkOne(t *testing.T, link string) map[string]string {
	t.Helper()
	found := map[string]string{}
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		t.Error(err)
		return found
	}
	err = filepath.WalkDir(target, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			rel, _ := filepath.Rel(target, path)
			found[filepath.ToSlash(rel)] = content(t, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// own returns the names in a directory that are the writer's.
func own(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if isOwn(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names
}

func mustWrite(t *testing.T, dir string, files Files, group *int64) bool {
	t.Helper()
	changed, err := Write(dir, files, group)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func expectFiles(t *testing.T, dir string, files Files) {
	t.Helper()
	want := map[string]string{}
	for name, file := range files {
		want[name] = string(file.Data)
	}
	if got := read(t, dir); !maps.Equal(got, want) {
		t.Errorf("there is %v, want %v", got, want)
	}
	if names := own(t, dir); len(names) != 2 {
		t.Errorf("of the writer's own there is %v, want one directory and %s", names, dataLink)
	}
}

func TestWrite(t *testing.T) {
	dir := tempDir(t)
	for i, files := range []Files{
		{"a": text("1"), "d/e/f": text("2"), "d/g": text("3")},
		{"a": text("2"), "d/e/f": text("2"), "d/g": text("3")},
		{"a": text("2"), "d/e/f": text("2"), "new": text("x")},
		{"d": text("now a file"), "a/b": text("now a directory")},
		{"a": text("")},
		{},
		{"a": text("back")},
	} {
		expect(t, fmt.Sprintf("change %d", i), mustWrite(t, dir, files, nil), true)
		expectFiles(t, dir, files)
		before, _ := os.Readlink(filepath.Join(dir, dataLink))
		expect(t, fmt.Sprintf("change %d, again", i), mustWrite(t, dir, files, nil), false)
		after, _ := os.Readlink(filepath.Join(dir, dataLink))
		expect(t, "the directory", after, before)
	}
	target, err := os.Readlink(filepath.Join(dir, "a"))
	expectError(t, err, "")
	expect(t, "the link that users see", target, "..data/a")
}

func TestWriteModes(t *testing.T) {
	dir := tempDir(t)
	files := Files{"a": {Data: []byte("1"), Mode: 0o400}, "b/c": {Data: []byte("1"), Mode: 0o777}}
	mustWrite(t, dir, files, nil)
	for name, want := range map[string]fs.FileMode{"a": 0o400, "b": 0o755, "b/c": 0o777, dataLink: 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		expectError(t, err, "")
		expect(t, "the mode of "+name, info.Mode().Perm(), want)
	}
	files["a"] = File{Data: []byte("1"), Mode: 0o440}
	expect(t, "a change of the mode alone", mustWrite(t, dir, files, nil), true)
}

// Any damage to the directory is repaired.
func TestWriteRepairs(t *testing.T) {
	files := Files{"a": text("1"), "d/e": text("2")}
	for name, damage := range map[string]func(dir string) error{
		"a file is another":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644) },
		"a file is gone":          func(dir string) error { return os.Remove(filepath.Join(dir, "d/e")) },
		"a file is more":          func(dir string) error { return os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o644) },
		"a mode is another":       func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o600) },
		"a link is gone":          func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"a link is a file":        func(dir string) error { return replace(filepath.Join(dir, "a"), "x") },
		"a link leads elsewhere":  func(dir string) error { return relink(filepath.Join(dir, "a"), "/etc/passwd") },
		"..data is gone":          func(dir string) error { return os.Remove(filepath.Join(dir, dataLink)) },
		"..data leads nowhere":    func(dir string) error { return relink(filepath.Join(dir, dataLink), "..gone") },
		"..data leads out":        func(dir string) error { return relink(filepath.Join(dir, dataLink), "../..") },
		"..data leads to a file":  func(dir string) error { return relink(filepath.Join(dir, dataLink), "a") },
		"..data is what it is no": func(dir string) error { return replace(filepath.Join(dir, dataLink), "x") },
		"rubbish of a crash": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "..2026_x", "y"), 0o755), os.Symlink("..2026_x", filepath.Join(dir, newLink)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			mustWrite(t, dir, files, nil)
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, dir, files, nil)
			expectFiles(t, dir, files)
			expect(t, "a change", mustWrite(t, dir, files, nil), false)
		})
	}
}

func replace(path, data string) error {
	return errors.Join(os.Remove(path), os.WriteFile(path, []byte(data), 0o644))
}

func relink(path, target string) error {
	return errors.Join(os.Remove(path), os.Symlink(target, path))
}

func TestWriteErrors(t *testing.T) {
	_, err := Write(filepath.Join(tempDir(t), "none"), Files{}, nil)
	expectError(t, err, "no such file")
	_, err = Write(tempDir(t), Files{"../a": {}}, nil)
	expectError(t, err, "reserved")
}

// A writer may die before any of its steps: then there are the old files or the
// new, all of them, and the next write leaves the new and no rubbish.
func TestCrash(t *testing.T) {
	before := Files{"a": text("1"), "gone": text("1"), "d/e": text("1")}
	after := Files{"a": text("2"), "new": text("2"), "d/e": text("2"), "d/f": text("2")}
	errDead := errors.New("dead")
	for _, first := range []bool{true, false} {
		crashes := 0
		for n := 0; ; n++ {
			dir := tempDir(t)
			if !first {
				mustWrite(t, dir, before, nil)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			steps := 0
			w := writer{root: root, files: after, step: func(string) error {
				if steps++; steps > n {
					return errDead
				}
				return nil
			}}
			_, err = w.write()
			_ = root.Close()
			if err == nil {
				break // it came to its end
			}
			crashes++
			if !errors.Is(err, errDead) {
				t.Fatal(err)
			}
			if isThere(filepath.Join(dir, dataLink)) {
				got := walkOne(t, filepath.Join(dir, dataLink))
				if generation := got["a"]; generation == "1" && len(got) != 3 || generation == "2" && len(got) != 4 || len(got) < 3 {
					t.Errorf("dead before step %d, there is %v", n, got)
				}
			} else if !first {
				t.Errorf("dead before step %d, there is nothing", n)
			}
			mustWrite(t, dir, after, nil)
			expectFiles(t, dir, after)
		}
		if crashes < 8 {
			t.Errorf("it died in %d places only", crashes)
		}
	}
}

// A reader that follows ..data sees files of one generation, all of them.
func TestReadersSeeWholeStates(t *testing.T) {
	dir := tempDir(t)
	generation := func(n int) Files {
		files := Files{"count": text(fmt.Sprint(n, n%5))}
		for i := range n % 5 {
			files[fmt.Sprintf("d%d/f", i)] = text(fmt.Sprint(n, n%5))
		}
		return files
	}
	mustWrite(t, dir, generation(0), nil)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			seen := 0
			for {
				select {
				case <-done:
					if seen == 0 {
						t.Error("a reader has read nothing")
					}
					return
				default:
				}
				if readGeneration(t, dir) {
					seen++
				}
			}
		})
	}
	for n := range 200 {
		mustWrite(t, dir, generation(n), nil)
	}
	close(done)
	readers.Wait()
}

// readGeneration reads all files once, and reports whether it could before they
// were replaced.
func readGeneration(t *testing.T, dir string) bool {
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Errorf("no %s at some time: %v", dataLink, err)
		return false
	}
	data, err := os.ReadFile(filepath.Join(dir, target, "count"))
	if err != nil {
		return false // replaced meanwhile
	}
	var n, count int
	if _, err := fmt.Sscan(string(data), &n, &count); err != nil {
		t.Errorf("a part of a file: %q", data)
		return false
	}
	for i := range count {
		other, err := os.ReadFile(filepath.Join(dir, target, fmt.Sprintf("d%d/f", i)))
		if errors.Is(err, fs.ErrNotExist) && !isThere(filepath.Join(dir, target, "count")) {
			return false
		}
		if errors.Is(err, fs.ErrNotExist) {
			// Removal may have begun with this file; then the link is a new one.
			if now, _ := os.Readlink(filepath.Join(dir, dataLink)); now != target {
				return false
			}
		}
		if err != nil || string(other) != string(data) {
			t.Errorf("generation %d has a file with %q: %v", n, other, err)
		}
	}
	return true
}

func TestWriteOwners(t *testing.T) {
	needRoot(t)
	dir := tempDir(t)
	files := Files{"token": {Data: []byte("x"), Mode: 0o600, UID: ptr.To[int64](1000)}, "secret": {Mode: 0o400}, "d/open": text("x"), "script": {Mode: 0o555}}
	expect(t, "a change", mustWrite(t, dir, files, ptr.To[int64](2000)), true)
	for name, want := range map[string]string{
		"token": "0640 1000:2000", "secret": "0440 0:2000", "d/open": "0644 0:2000", "script": "0555 0:2000",
		"d": "2755 0:2000", dataLink: "2755 0:2000",
	} {
		expect(t, name, ls(t, filepath.Join(dir, name)), want)
	}
	expect(t, "a change", mustWrite(t, dir, files, ptr.To[int64](2000)), false)
	expect(t, "another group is a change", mustWrite(t, dir, files, ptr.To[int64](2001)), true)
	files["token"] = File{Data: []byte("x"), Mode: 0o600, UID: ptr.To[int64](1001)}
	expect(t, "another owner is a change", mustWrite(t, dir, files, ptr.To[int64](2001)), true)
	expect(t, "the token", ls(t, filepath.Join(dir, "token")), "0640 1001:2001")
}
