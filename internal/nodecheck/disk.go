package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/client-go/util/exec"
)

var diskChecks = []Check{
	{Name: "volumes-freed", Title: "a pod that has finished gives back what was in its volumes", Needs: []Capability{Volumes, Commands, Exec}, OnDisk: true, run: checkVolumesFreed},
	{Name: "disk-freed", Title: "no file of a pod stays on disk once it is deleted", Needs: []Capability{Volumes}, OnDisk: true, run: checkDiskFreed},
}

// checkVolumesFreed knows the files of volumes by their names, which nothing else has.
// Some volumes may be where this process cannot see them, such as in a tmpfs of another
// mount namespace; not all of them.
func checkVolumesFreed(ctx context.Context, s *Scope) error {
	name := missingName()
	secret, err := s.CreateSecret(ctx, "", map[string]string{name + "-secret": "xyzzy"})
	if err != nil {
		return err
	}
	pod := s.job("cd " + mounted("/scratch") + "; touch " + name + "-scratch; until [ -e end ]; do sleep 0.1; done")
	pod.Spec.Volumes = []corev1.Volume{
		scratchVolume("scratch"),
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name}}},
	}
	mountAll(pod)
	pod, err = s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	if err := s.waitOnDisk(ctx, name); err != nil {
		return err
	}
	ended, err := s.Follow(ctx, pod, "has finished", func(ctx context.Context) error {
		_, err := s.exec(ctx, pod, "main", nil, false, s.inShell("touch "+mounted("/scratch/end"))...)
		var exit utilexec.CodeExitError
		if errors.As(err, &exit) && exit.Code == 137 {
			return nil // the container has ended at once, and the command was killed with it
		}
		return err
	}, ends(corev1.PodSucceeded))
	if err != nil {
		return err
	}
	if err := s.waitOffDisk(ctx, name); err != nil {
		return fmt.Errorf("the volumes of pod %s, which is %s, are to be given back without waiting for its deletion: %w", pod.Name, ended.Status.Phase, err)
	}
	return nil
}

func checkDiskFreed(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.Volumes = []corev1.Volume{scratchVolume("scratch")}
	mountAll(pod)
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	if err := s.waitOnDisk(ctx, string(pod.UID)); err != nil {
		return err
	}
	if _, err := s.Follow(ctx, pod, "is gone", func(ctx context.Context) error { return s.Delete(ctx, pod, 10) }, Gone); err != nil {
		return err
	}
	if err := s.waitOffDisk(ctx, string(pod.UID)); err != nil {
		return fmt.Errorf("all that belongs to pod %s, which is deleted, is to be removed: %w", pod.Name, err)
	}
	return nil
}

// waitOnDisk waits until there is a path with the text in its last part. Without, the
// check would pass no matter what is left.
func (n *Node) waitOnDisk(ctx context.Context, text string) error {
	return n.Poll(ctx, func(context.Context) error {
		paths, err := pathsNaming(n.Directories, text)
		if err == nil && len(paths) == 0 {
			err = fmt.Errorf("nothing below %q has %q in its name while the pod runs: name the directories where the provider keeps the files of pods", n.Directories, text)
		}
		return err
	})
}

// waitOffDisk waits until there is no such path.
func (n *Node) waitOffDisk(ctx context.Context, text string) error {
	return n.Poll(ctx, func(context.Context) error {
		paths, err := pathsNaming(n.Directories, text)
		if err == nil && len(paths) > 0 {
			err = fmt.Errorf("there still are %q", paths)
		}
		return err
	})
}

// pathsNaming returns the paths below the directories whose last part has the text in
// it. What goes meanwhile is left out; a directory that cannot be read is an error.
func pathsNaming(directories []string, text string) ([]string, error) {
	var found []string
	for _, dir := range directories {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("look for files of pods: %w", err)
			}
			if err == nil && strings.Contains(filepath.Base(path), text) {
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
