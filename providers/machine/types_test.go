package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestTypesConfig(t *testing.T) {
	for text, want := range map[string]string{
		`types: [{cpu: 1, memory: 1Gi}]`:                                                `types[0].name: ""`,
		`types: [{name: "a b", cpu: 1, memory: 1}]`:                                     `types[0].name: "a b"`,
		`types: [{name: a, cpu: 1, memory: 1}, {name: a, cpu: 1, memory: 1}]`:           `types[1].name: there is another type "a"`,
		`types: [{name: a, memory: 1Gi}]`:                                               "types[0].cpu: it is required",
		`types: [{name: a, cpu: 1, memory: 0}]`:                                         "types[0].memory: it is required",
		`types: [{name: a, cpu: 1, memory: 1, resources: {cpu: 1}}]`:                    "types[0].resources[cpu]",
		`types: [{name: a, cpu: 1, memory: 1, resources: {nvidia.com/gpu: 0}}]`:         "types[0].resources[nvidia.com/gpu]: 0 is not positive",
		`types: [{name: a, cpu: 1, memory: 1, price: -1}]`:                              "types[0].price: -1 is negative",
		`types: [{name: a, cpu: 1, memory: 1, price: 1}, {name: b, cpu: 1, memory: 1}]`: "1 of 2 have a price",
		`types: [{name: a, cpu: 1, memory: 1, gpu: 1}]`:                                 "types[0].gpu",
		`types: [{name: a, cpu: 1, memory: 1}], resources: {nvidia.com/gpu: 1}`:         "resources[nvidia.com/gpu]: no type has it",
	} {
		_, err := ParseConfig([]byte("{cluster: home, stateDir: /state, exec: {command: [x]}, bootstrap: {url: \"https://10.0.0.5:10271\"}, " + text + "}"))
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "2 mistakes") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

const someTypes = `{cluster: home, stateDir: /state, exec: {command: [x]}, bootstrap: {url: "https://10.0.0.5:10271"}, pods: 10, resources: {example.com/fpga: 3}, types: [
  {name: large, cpu: 8, memory: 32Gi, price: 0.4, arguments: {zone: b}}, {name: gpu, cpu: 4, memory: 16Gi, resources: {nvidia.com/gpu: 2, example.com/fpga: 1}, price: 2},
  {name: small, cpu: 2, memory: 4Gi, price: "0.05"}, {name: small-b, cpu: 2, memory: 4Gi, price: 0.05}]}`

func list(text string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, one := range strings.Fields(text) {
		name, quantity, _ := strings.Cut(one, "=")
		all[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return all
}

// The type of a pod's machine is the cheapest that has what the scheduler counts for the pod.
func TestTypeOfAPod(t *testing.T) {
	c, err := ParseConfig([]byte(someTypes))
	if err != nil {
		t.Fatal(err)
	}
	gpus, fpgas := c.Resources["nvidia.com/gpu"], c.Resources["example.com/fpga"]
	if gpus.Value() != 20 || fpgas.Value() != 3 {
		t.Errorf("the node has %v GPUs and %v FPGAs", &gpus, &fpgas)
	}
	for _, test := range []struct{ name, containers, init, pod, overhead, annotation, want string }{
		{name: "nothing", want: "small"},
		{name: "requests", containers: "cpu=2 memory=4Gi", want: "small"},
		{name: "a little more", containers: "cpu=2001m", want: "large"},
		{name: "overhead", containers: "cpu=2", overhead: "cpu=1m", want: "large"},
		{name: "an init container", containers: "cpu=1", init: "memory=5Gi", want: "large"},
		{name: "the pod as a whole", containers: "cpu=1", pod: "cpu=3", want: "large"},
		{name: "a GPU", containers: "nvidia.com/gpu=1", want: "gpu"},
		{name: "an annotation", annotation: "large", want: "large"},
		{name: "no type of that name", annotation: "huge", want: `a type "huge"`},
		{name: "too much for the annotation", containers: "memory=5Gi", annotation: "small-b", want: "in the type small-b of machines: 5Gi of memory, of which the largest has 4Gi"},
		{name: "too much", containers: "cpu=9 memory=1Gi", want: "9 of cpu, of which the largest has 8"},
		{name: "what none has", containers: "example.com/odd=1 cpu=1", want: "1 of example.com/odd, of which the largest has 0"},
		{name: "a GPU with too much", containers: "nvidia.com/gpu=1 cpu=5", want: "gpu has too little cpu; large has too little nvidia.com/gpu"},
	} {
		pod := &corev1.Pod{}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(test.containers)}}}
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: list(test.init)}}}
		if test.pod != "" {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list(test.pod)}
		}
		pod.Spec.Overhead = list(test.overhead)
		if test.annotation != "" {
			pod.Annotations = map[string]string{TypeAnnotation: test.annotation}
		}
		chosen, why := c.typeOf(pod)
		if chosen != nil && chosen.Name != test.want || chosen == nil && !strings.Contains(why, test.want) {
			t.Errorf("%s: %v, %s", test.name, chosen, why)
		}
	}
}

// The driver is asked for the type that the pod needs, and a pod that none has room for is refused
// before anything is made.
func TestTypesOfMachines(t *testing.T) {
	w := newWorld(t)
	parsed, err := ParseConfig([]byte(someTypes))
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.Types, w.cfg.Resources = parsed.Types, nil
	w.start()
	pod := w.pod("large")
	pod.Spec.Containers[0].Resources.Requests = list("cpu=3")
	w.eventually("it is created", func() error { return w.provider.CreatePod(t.Context(), pod) })
	m := w.only()
	if m.spec.Type != "large" || m.spec.CPU != 8000 || m.spec.Memory != 32<<30 || m.spec.Arguments["zone"] != "b" || m.Tags[tagType] != "large" {
		t.Errorf("the driver is asked for %+v", m.spec)
	}
	if text := <-w.cluster.Events.Events; !strings.Contains(text, "of type large") {
		t.Errorf("the event is %q", text)
	}
	huge := w.pod("huge")
	huge.Spec.Containers[0].Resources.Requests = list("cpu=300")
	if err := w.provider.CreatePod(t.Context(), huge); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "300 of cpu") {
		t.Errorf("a pod that no type has room for: %v", err)
	}
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

func TestExecHasTheType(t *testing.T) {
	d, dir := execOf(t, `printf %s "$MACHINE_TYPE" > "$0/type"; echo '{}'`)
	if _, err := d.Create(t.Context(), Spec{Name: "a-1", Type: "large", Arguments: map[string]string{"zone": "b"}}); err != nil {
		t.Fatal(err)
	}
	name, _ := os.ReadFile(filepath.Join(dir, "type"))
	in, _ := os.ReadFile(filepath.Join(dir, "in.create"))
	if string(name) != "large" || !strings.Contains(string(in), `"type":"large","arguments":{"zone":"b"}`) {
		t.Errorf("the variable is %q, the input %s", name, in)
	}
}
