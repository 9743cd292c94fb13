package slurm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/slurmtest"
)

func TestSuite(t *testing.T) {
	for _, runtime := range []Runtime{RuntimePodman, RuntimeApptainer, RuntimeEnroot} {
		t.Run(string(runtime), func(t *testing.T) {
			grouptest.Suite{
				New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
					c := Config{Cluster: "test", Runtime: runtime}
					if err := c.complete(); err != nil {
						t.Fatal(err)
					}
					b := newBackend(c, slurmtest.Fake{World: w})
					return b, b.options()
				},
				Actions: map[podgroup.Action]string{podgroup.ActionCreate: slurmtest.ActionSubmit, podgroup.ActionList: slurmtest.ActionList},
			}.Run(t)
		})
	}
}

// What jobs do not have is named in one error, and one event, before anything is made.
func TestRefusedFields(t *testing.T) {
	w, home := grouptest.New(0), grouptest.NewCluster("home")
	c := Config{Cluster: "test", Runtime: RuntimePodman}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	b := newBackend(c, slurmtest.Fake{World: w})
	p, _ := home.Start(t, b, b.options())
	pod := grouptest.NewPod("probes")
	main := &pod.Spec.Containers[0]
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	main.LivenessProbe, main.ReadinessProbe, main.StartupProbe = probe, probe, probe
	main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	home.SetPod(pod)
	err := p.CreatePod(t.Context(), pod)
	if err == nil {
		t.Fatal("the pod is created")
	}
	for _, field := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "privileged", "persistentVolumeClaim"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if units := w.Units(nil); len(units) > 0 {
		t.Errorf("there are the units %v", units)
	}
}

// The suite checks what becomes of a node in another place. A machine or a directory is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	for _, c := range []Config{
		{},
		{Root: "another"},
		{SSH: &SSH{Host: "login"}},
		{SSH: &SSH{Host: "login", User: "another"}},
		{SSH: &SSH{Host: "login", Port: 2222}}, // is none
	} {
		c.Cluster = "test"
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		places[newBackend(c, nil).options().Place] = true
	}
	if len(places) != 4 {
		t.Errorf("the places of four configurations are %v", places)
	}
}
