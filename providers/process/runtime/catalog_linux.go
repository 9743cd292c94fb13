package runtime

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// catalog says what images stand for.
type catalog struct {
	list []*standIn
	// none is what all other images stand for.
	none *standIn
}

// standIn is an Image that was checked.
type standIn struct {
	Image
	account *account // nil is the pod's
}

// newCatalog checks Config.Images, and allows what they name to be run.
func (r *Runtime) newCatalog(images []Image) (*catalog, error) {
	c := &catalog{none: &standIn{}}
	for _, image := range images {
		s := &standIn{Image: image}
		if err := r.check(s); err != nil {
			return nil, fmt.Errorf("%q: %w", image.Name, err)
		}
		c.list = append(c.list, s)
		programs := slices.Collect(maps.Values(image.Files))
		if len(image.Command) > 0 && filepath.IsAbs(image.Command[0]) {
			programs = append(programs, image.Command[0])
		}
		for _, program := range programs {
			// What is not there now may be installed later, and then has no link.
			if real, err := filepath.EvalSymlinks(program); err == nil {
				program = real
			}
			r.policy.programs = append(r.policy.programs, filepath.Clean(program))
		}
	}
	return c, nil
}

func (r *Runtime) check(s *standIn) (err error) {
	if _, err := path.Match(s.Name, ""); err != nil || s.Name == "" {
		return errors.New("name: give the image's name, or a pattern of names such as example.com/app:*")
	}
	if s.User != "" {
		user, err := defaultAccount(s.User, r.policy.root)
		if err != nil {
			return fmt.Errorf("user: %w", err)
		}
		s.account = &user
	}
	if s.WorkingDir != "" && !filepath.IsAbs(s.WorkingDir) {
		return fmt.Errorf("workingDir: %q is no absolute path", s.WorkingDir)
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		return errors.New("command: it begins with an empty string")
	}
	if len(s.Files) > 0 && r.isolation != IsolationNamespaces {
		return errors.New("files: they need isolation by namespaces, and hence root: name programs of the machine in command instead")
	}
	for target, source := range s.Files {
		if !mountable(filepath.Clean(target)) {
			return fmt.Errorf("files: nothing can be put at %q", target)
		}
		if !filepath.IsAbs(source) {
			return fmt.Errorf("files: %q is no absolute path", source)
		}
	}
	return nil
}

// mountable reports whether something can be mounted at a clean path.
func mountable(target string) bool {
	return filepath.IsAbs(target) && target != "/" && target != "/dev" && !below("/proc", target)
}

// find is never nil.
func (c *catalog) find(image string) *standIn {
	for _, s := range c.list {
		if matchImage(s.Name, image) {
			return s
		}
	}
	return c.none
}

// matchImage reports whether the name of an image matches a pattern.
func matchImage(pattern, image string) bool {
	if repositoryOf(pattern) == pattern {
		image = repositoryOf(image)
	}
	ok, err := path.Match(pattern, image)
	return ok && err == nil
}

// repositoryOf is an image's name without its tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon]
	}
	return image
}

// args are what is run for a container with a command and arguments.
func (s *standIn) args(command, args []string) []string {
	switch {
	case len(command) > 0:
		return slices.Concat(command, args)
	case len(args) > 0:
		return slices.Concat(s.Command, args)
	default:
		return slices.Concat(s.Command, s.Args)
	}
}

// mounts are the image's files, but for those that volumes replace.
func (s *standIn) mounts(volumes []shim.Mount) ([]shim.Mount, error) {
	var all []shim.Mount
	for _, target := range slices.Sorted(maps.Keys(s.Files)) {
		m := shim.Mount{Target: filepath.Clean(target), Readonly: true}
		if slices.ContainsFunc(volumes, func(v shim.Mount) bool { return v.Target == m.Target }) {
			continue
		}
		var err error
		if m.Source, err = filepath.EvalSymlinks(s.Files[target]); err != nil {
			return nil, invalid("the file %s of the image %s: %v: have the node's operator install it, or change images", target, s.Name, err)
		}
		all = append(all, m)
	}
	return all, nil
}
