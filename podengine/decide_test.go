package podengine

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Each line of testdata/decide.txt is a case; its first lines say how to read
// it.
func TestDecide(t *testing.T) {
	file, err := os.Open("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	section, cases := "", 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			t.Fatalf("%q has %d columns, want 4", line, len(columns))
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		cases++
		t.Run(section+"/"+columns[3], func(t *testing.T) {
			v := &view{
				now: testNow, pod: parsePod(t, columns[0]), containers: map[string]*container{},
				failed: map[string]time.Time{}, crashed: map[string]time.Time{}, probed: map[string]probed{},
				restarting: map[string]bool{},
			}
			parseState(t, v, columns[1])
			if got := describe(decide(v)); got != columns[2] {
				t.Errorf("pod %s, state %s: got %q, want %q", columns[0], columns[1], got, columns[2])
			}
		})
	}
	if cases < 50 {
		t.Errorf("found only %d cases", cases)
	}
}

func describe(a action) string {
	words := []string{string(a.verb)}
	if a.container != "" {
		words = append(words, a.container)
	}
	if !a.at.IsZero() {
		words = append(words, "+"+a.at.Sub(testNow).String())
	}
	return strings.Join(words, " ")
}

// parsePod reads the containers of a pod: "init:NAME", "side:NAME", "debug:NAME"
// or "NAME", and settings: see testdata/decide.txt.
func parsePod(t *testing.T, text string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	for _, word := range strings.Fields(text) {
		if key, value, ok := strings.Cut(word, "="); ok {
			switch key {
			case "policy":
				pod.Spec.RestartPolicy = corev1.RestartPolicy(value)
			case "deadline":
				seconds, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				pod.Spec.ActiveDeadlineSeconds = &seconds
			case "always":
				_, c := findContainer(pod, value)
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			case "rule":
				on42(pod, value, corev1.ContainerRestartRuleActionRestart)
			case "all":
				on42(pod, value, corev1.ContainerRestartRuleActionRestartAllContainers)
			default:
				t.Fatalf("unknown setting %q", word)
			}
			continue
		}
		kind, name, ok := strings.Cut(word, ":")
		if !ok {
			kind, name = "", word
		}
		c := corev1.Container{Name: name, Image: "image"}
		switch kind {
		case "":
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		case "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "side":
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "debug":
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers,
				corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "image"}})
		default:
			t.Fatalf("unknown kind of container %q", word)
		}
	}
	return pod
}

// on42 gives a container of the pod a rule.
func on42(pod *corev1.Pod, name string, action corev1.ContainerRestartRuleAction) {
	_, c := findContainer(pod, name)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    action,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
}

// parseState reads what is known of a pod: see testdata/decide.txt.
func parseState(t *testing.T, v *view, text string) {
	duration := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "-":
		case key == "box":
			v.sandbox = &sandbox{id: "new", ready: true}
		case key == "lostbox":
			v.sandbox = &sandbox{id: "new"}
		case key == "vanished":
			v.vanished = testNow.Add(duration(value))
		case key == "stopping":
			v.stopping = true
		case key == "age":
			v.started = testNow.Add(-duration(value))
		case strings.HasPrefix(key, "failed:"):
			name, _ := strings.CutPrefix(key, "failed:")
			if name == "box" {
				name = ""
			}
			v.failed[name] = testNow.Add(duration(value))
		case strings.HasPrefix(key, "crash:"):
			name, _ := strings.CutPrefix(key, "crash:")
			v.crashed[name] = v.containers[name].finished.Add(duration(value))
		default:
			v.containers[key] = parseContainer(t, v, key, value, duration)
		}
	}
}

func parseContainer(t *testing.T, v *view, name, text string, duration func(string) time.Duration) *container {
	parts := strings.Split(text, "/")
	c := &container{id: "id-" + name, name: name, sandbox: "new", hash: hashOf(&corev1.Container{Name: name, Image: "image"})}
	for i, part := range parts {
		switch {
		case part == "created" || part == "running" || part == "aborted" || part == "unknown":
			c.phase = phase(part)
		case part == "exited":
			c.phase = exited
			code, err := strconv.Atoi(parts[i+1])
			if err != nil {
				t.Fatal(err)
			}
			c.exitCode = int32(code)
			c.finished = testNow.Add(-time.Hour)
		case part == "old":
			c.sandbox = "old"
		case part == "otherimage":
			c.hash = hashOf(&corev1.Container{Name: name, Image: "other"})
		case part == "unstartable":
			v.unstartable = map[string]bool{c.id: true}
		case part == "again":
			v.restarting[c.id] = true
		case part == "started":
			v.probed[name] = probed{started: true}
		case part == "unwell":
			v.probed[name] = probed{started: true, failed: fmt.Sprintf("Container %s failed liveness probe", name)}
		case strings.HasSuffix(part, "ago"):
			c.finished = testNow.Add(-duration(strings.TrimSuffix(part, "ago")))
		case i > 0 && parts[i-1] == "exited":
		default:
			t.Fatalf("unknown word %q for container %s", part, name)
		}
	}
	return c
}
