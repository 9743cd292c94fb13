package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

var isolationChecks = []Check{
	{Name: "isolation-files", Title: "a pod cannot reach files of another: its volumes, /tmp and shared memory", Needs: []Capability{Isolation, Commands, Exec, Volumes}, run: checkIsolatedFiles},
	{Name: "isolation-processes", Title: "a pod can neither signal processes of another nor read their environment", Needs: []Capability{Isolation, Commands, Exec}, run: checkIsolatedProcesses},
}

// ownDirs are where every container may write, besides its volumes, if they are there.
const ownDirs = "/tmp /var/tmp /dev/shm"

// victim is a pod that another one attacks.
type victim struct {
	*Scope
	pod *corev1.Pod
	// name and secret are those of what it has, and occur nowhere else.
	name, secret string
}

// createVictim creates a pod that runs, with a volume if that is asked for.
func (s *Scope) createVictim(ctx context.Context, volumes ...corev1.Volume) (*victim, error) {
	v := &victim{Scope: s, name: "nodecheck-" + rand.String(10), secret: rand.String(20)}
	pod := s.Pod(s.container("main", ": "+v.name+"; "+stay))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NODECHECK_SECRET", Value: v.secret}}
	pod.Spec.Volumes = volumes
	mountAll(pod)
	var err error
	v.pod, err = s.createAnd(ctx, pod, "runs", Running)
	return v, err
}

// hidden is a word for a script such that the script itself does not have it.
func hidden(word string) string { return word[:len(word)/2] + "''" + word[len(word)/2:] }

// attack runs a script in a pod of its own, which has to come to its end, and sees
// whether the victim still runs as it did.
func (v *victim) attack(ctx context.Context, script string) error {
	pod := v.job(script)
	if _, err := v.proves(ctx, pod); err != nil {
		return fmt.Errorf("a pod that attacks another: %w", err)
	}
	out, err := v.exec(ctx, v.pod, "main", nil, false, v.inShell(`echo "$NODECHECK_SECRET"`)...)
	if err != nil || out.stdout != v.secret+"\n" {
		return errors.Join(errors.New("the pod that was attacked no longer runs commands"), err)
	}
	now, err := v.Client.CoreV1().Pods(v.pod.Namespace).Get(ctx, v.pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	v.seen(now)
	return SameContainers(v.pod, now)
}

// checkIsolatedFiles has a pod look for files of another by the paths that they have
// there, by those that they really have, and through the other's processes.
func checkIsolatedFiles(ctx context.Context, s *Scope) error {
	v, err := s.createVictim(ctx, scratchVolume("scratch"))
	if err != nil {
		return err
	}
	out, err := s.exec(ctx, v.pod, "main", nil, false, s.inShell(`for dir in `+mounted("/scratch")+` `+ownDirs+`; do
[ -d "$dir" ] && echo '`+v.secret+`' > "$dir/`+v.name+`" && (cd "$dir" && pwd -P); done; true`)...)
	if err != nil {
		return fmt.Errorf("write the files of a pod: %w (%s)", err, out.stderr)
	}
	places := strings.Fields(out.stdout)
	if len(places) < 2 {
		return fmt.Errorf("a pod can write only into %q", places)
	}
	return v.attack(ctx, `for dir in /scratch `+ownDirs+` `+strings.Join(places, " ")+`; do for at in "$dir" /proc/[0-9]*/root"$dir" /proc/[0-9]*/cwd; do
file=$at/`+v.name+`
case "$(cat "$file" 2>/dev/null)" in *`+hidden(v.secret)+`*) echo "it reads $file"; exit 1;; esac
if [ -e "$file" ] && (echo evil >> "$file") 2>/dev/null; then echo "it writes $file"; exit 1; fi
done; done`)
}

// checkIsolatedProcesses has a pod look for processes of another by their command
// lines and environments, and kill those that it finds.
func checkIsolatedProcesses(ctx context.Context, s *Scope) error {
	v, err := s.createVictim(ctx)
	if err != nil {
		return err
	}
	return v.attack(ctx, `for process in /proc/[0-9]*; do
case "$(cat $process/environ 2>/dev/null | tr '\0' ' ')" in *`+hidden(v.secret)+`*) echo "it reads the environment of another pod in $process"; exit 1;; esac
case "$(cat $process/cmdline 2>/dev/null | tr '\0' ' ')" in *`+hidden(v.name)+`*)
if kill -0 ${process#/proc/} 2>/dev/null; then echo "it can signal $process of another pod"; exit 1; fi;; esac
done`)
}
