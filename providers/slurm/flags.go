package slurm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The annotations of pods.
const (
	// annotationFlags has further flags of sbatch, as in a command line.
	annotationFlags = "slurm-job.vk.io/flags"
	// annotationImageRoot takes the place of Config.ImagePrefix.
	annotationImageRoot = "slurm-job.vk.io/image-root"
	// annotationPreExec is run by bash before the containers.
	annotationPreExec = "slurm-job.vk.io/pre-exec"
	// annotationOptions has further flags of apptainer or singularity, which the operator's
	// AllowPreExec allows too: they reach what the user reaches.
	annotationOptions = "slurm-job.vk.io/singularity-options"
)

// ownFlags are those that the provider sets itself.
var ownFlags = map[string]bool{
	"--job-name": true, "--output": true, "--error": true, "--input": true, "--open-mode": true, "--chdir": true, "--wrap": true, "--parsable": true, "--array": true,
	"--export": true, "--export-file": true, "--get-user-env": true, "--requeue": true, "--no-requeue": true, "--signal": true, "--wait": true, "--test-only": true,
	"--uid": true, "--gid": true, "--clusters": true, "--het-group": true,
}

// podFlags are those that a pod may have, with their letters: they say what the job needs,
// not what it does. Those that begin with a question mark need no value.
var podFlags = map[string]string{
	"--account": "-A", "--begin": "-b", "--bb": "", "--cluster-constraint": "", "--constraint": "-C", "--contiguous": "?", "--core-spec": "-S",
	"--cores-per-socket": "", "--cpu-freq": "", "--cpus-per-gpu": "", "--cpus-per-task": "-c", "--deadline": "", "--delay-boot": "", "--dependency": "-d",
	"--distribution": "-m", "--exclude": "-x", "--exclusive": "?", "--extra-node-info": "-B", "--gpu-bind": "", "--gpu-freq": "", "--gpus": "-G",
	"--gpus-per-node": "", "--gpus-per-socket": "", "--gpus-per-task": "", "--gres": "", "--gres-flags": "", "--hint": "", "--hold": "?-H", "--licenses": "-L",
	"--mail-type": "", "--mail-user": "", "--mcs-label": "", "--mem": "", "--mem-bind": "", "--mem-per-cpu": "", "--mem-per-gpu": "", "--mincpus": "",
	"--network": "", "--nice": "?", "--nodelist": "-w", "--nodes": "-N", "--ntasks": "-n", "--ntasks-per-core": "", "--ntasks-per-gpu": "",
	"--ntasks-per-node": "", "--ntasks-per-socket": "", "--overcommit": "?-O", "--oversubscribe": "?-s", "--partition": "-p", "--power": "", "--prefer": "",
	"--priority": "", "--profile": "", "--qos": "-q", "--reservation": "", "--sockets-per-node": "", "--spread-job": "?", "--switches": "",
	"--thread-spec": "", "--threads-per-core": "", "--time": "-t", "--time-min": "", "--tmp": "", "--use-min-nodes": "?", "--wckey": "",
	"--job-name": "-J", "--comment": "", // existing pods have them; they are dropped, since they say whose a job is
}

func flagName(flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	return name
}

// parseFlags reads flags as in a command line: --name=value each, or --name.
func parseFlags(text string) (flags []string, err error) {
	words, err := splitWords(text)
	if err != nil {
		return nil, err
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, hasValue := strings.Cut(word, "=")
		if !strings.HasPrefix(word, "--") {
			if len(word) < 2 || word[0] != '-' {
				return nil, fmt.Errorf("%q is no flag", word)
			}
			name, value, hasValue = longName(word[:2]), strings.TrimPrefix(word[2:], "="), len(word) > 2
		}
		letter, ok := podFlags[name]
		if !ok {
			return nil, fmt.Errorf("pods may not have %s", name)
		}
		if !hasValue && !strings.HasPrefix(letter, "?") {
			if len(words) == 0 {
				return nil, fmt.Errorf("%s has no value", name)
			}
			value, words, hasValue = words[0], words[1:], true
		}
		if strings.Contains(value, "/") && (name == "--nodelist" || name == "--exclude") {
			return nil, fmt.Errorf("pods may not have %s with a slash: sbatch would read a file", name)
		}
		if hasValue {
			name += "=" + value
		}
		if flagName(name) != "--job-name" && flagName(name) != "--comment" {
			flags = append(flags, name)
		}
	}
	return flags, nil
}

func longName(letter string) string {
	for name, known := range podFlags {
		if strings.TrimPrefix(known, "?") == letter {
			return name
		}
	}
	return letter
}

// splitWords splits text at blanks, as a shell does: quotes and backslashes keep them.
func splitWords(text string) (words []string, err error) {
	var word strings.Builder
	inWord := false
	quote := rune(0)
	escaped := false
	for _, r := range text {
		switch {
		case r == 0:
			return nil, errors.New("there is a zero byte")
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && strings.ContainsRune(" \t\n\r", r):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// flags returns those of a job: the configuration's, then what the pod's resources say, then
// those of its annotation. Of two of one name the last one counts.
func (b *backend) flags(r *podgroup.Request) ([]string, error) {
	own, err := parseFlags(r.Pod.Annotations[annotationFlags])
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationFlags, err)
	}
	flags := slices.Clone(b.config.Flags)
	add := func(name, value string) {
		if value != "" {
			flags = append(flags, name+"="+value)
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(own, func(flag string) bool { return slices.Contains(names, flagName(flag)) })
	}
	add("--partition", b.config.Partition)
	add("--account", b.config.Account)
	add("--qos", b.config.QOS)
	add("--time", b.config.Time)
	if limit := r.Pod.Spec.ActiveDeadlineSeconds; limit != nil {
		add("--time", fmt.Sprint((*limit+59)/60+1)) // the pod's own deadline comes first
	}
	if !r.Size.CPU.IsZero() && !has("--cpus-per-gpu") {
		add("--cpus-per-task", fmt.Sprint(r.Size.CPU.Value()))
	}
	// Slurm takes one of these only.
	if !r.Size.Memory.IsZero() && !has("--mem-per-cpu", "--mem-per-gpu") {
		add("--mem", fmt.Sprintf("%dM", (r.Size.Memory.Value()+1<<20-1)>>20))
	}
	var gres []string
	for _, name := range slices.Sorted(maps.Keys(r.Size.Other)) {
		quantity := r.Size.Other[name]
		if of := b.config.GRES[name]; of != "" && !quantity.IsZero() {
			gres = append(gres, fmt.Sprintf("%s:%d", of, quantity.Value()))
		}
	}
	add("--gres", strings.Join(gres, ","))
	flags = append(flags, own...)
	if !slices.ContainsFunc(flags, func(flag string) bool { return flagName(flag) == "--comment" }) {
		comment, err := json.Marshal(r.Tags)
		if err != nil {
			return nil, err
		}
		add("--comment", string(comment))
	}
	return append(flags, "--job-name="+nameOf(r), "--export=NIL", "--no-requeue"), nil
}

// checkResources returns the resources that Slurm does not have.
func (b *backend) checkResources(pod *corev1.Pod) (missing []string) {
	size := podgroup.Size{Other: corev1.ResourceList{}}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		maps.Copy(size.Other, podgroup.SizeOf(&c.Resources).Other)
	}
	for _, name := range slices.Sorted(maps.Keys(size.Other)) {
		if name != corev1.ResourceEphemeralStorage && cmp.Or(b.config.GRES[name], "") == "" {
			missing = append(missing, "the resource "+string(name))
		}
	}
	return missing
}
