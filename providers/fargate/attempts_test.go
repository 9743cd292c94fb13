package fargate

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

const (
	noImage = "CannotPullContainerError: ref pull has been retried 1 time(s): not found"
	noRole  = "ResourceInitializationError: unable to pull secrets or registry auth: AccessDeniedException"
	noEntry = "CannotStartContainerError: no such file"
)

// A pod whose task cannot be started waits, as with a kubelet: a Deployment would make others
// without end. The task is run again, with growing delays, and with the variables of the pod.
func TestTasksThatDoNotStart(t *testing.T) {
	for why, reason := range map[string]string{noImage: "ImagePullBackOff", noRole: "TaskFailedToStart", noEntry: "CreateContainerError"} {
		t.Run(reason, func(t *testing.T) {
			onNode(t, nil, func(n *pods) {
				n.server.FailStarts(4, why)
				pod := grouptest.NewPod("waits")
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
				n.run(pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", Value: pod.Name}} })
				var tries []int
				for range 15 { // minutes
					for range 6 {
						status := n.phase(pod)
						if status.Phase == corev1.PodRunning {
							continue
						}
						if waits := status.ContainerStatuses[0].State.Waiting; status.Phase != corev1.PodPending || waits == nil || waits.Reason != reason && waits.Reason != "ContainerCreating" || waits.Reason == reason && !strings.Contains(waits.Message, why) {
							n.Fatalf("%+v", status)
						}
					}
					tries = append(tries, n.world.Calls("RunTask"))
				}
				if status := n.phase(pod); status.Phase != corev1.PodRunning || tries[0] > 2 || tries[3] > 3 || tries[14] != 5 {
					n.Errorf("%s, tasks by minute %v", status.Phase, tries)
				}
				all := n.world.Units(nil)
				if env := n.server.Environment(all[len(all)-1].Spec.Data.(ecstest.Task), "main"); env["POD"] != pod.Name {
					n.Errorf("the variables are %v", env)
				}
				if events := strings.Join(drain(n.cluster.Events.Events), "\n"); strings.Count(events, "Warning TaskFailedToStart") != 4 {
					n.Errorf("the events are %s", events)
				}
				n.remove(pod)
				if pods, err := n.GetPods(n.Context()); err != nil || len(pods) != 0 || len(n.server.Definitions()) != 0 {
					n.Errorf("%v, %v, %v", pods, err, n.server.Definitions())
				}
			})
		})
	}
}

// Another process goes on where this one ended, and does not run a task twice.
func TestTaskThatDoesNotStartAfterARestart(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.FailStarts(3, noRole)
		pod := grouptest.NewPod("waits")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.run(pod)
		for range 12 {
			pod.Status = *n.phase(pod)
		}
		n.cluster.SetPod(pod)
		before := n.world.Calls("RunTask")
		if before != 2 {
			n.Fatalf("%d attempts", before)
		}
		p := n.another(n.cluster.Config(), testConfig())
		all, err := p.GetPods(n.Context())
		if err != nil || len(all) != 1 || all[0].Status.Phase != corev1.PodPending || n.world.Calls("RunTask") != before {
			n.Errorf("%+v, %v, %d attempts", all, err, n.world.Calls("RunTask"))
		}
		n.Provider = p
		n.world.Hide(true) // lists lack tasks for a while
		if status := n.phase(pod); status.Phase != corev1.PodPending {
			n.Errorf("%+v", status)
		}
		n.world.Hide(false)
		time.Sleep(20 * time.Minute)
		n.phase(pod)
		time.Sleep(20 * time.Minute)
		n.phase(pod)
		if status := n.phase(pod); status.Phase != corev1.PodRunning {
			n.Errorf("%+v", status)
		}
		if units := n.world.Units(nil); len(units) != 4 {
			n.Errorf("%d tasks", len(units))
		}
	})
}

// What cannot be started because of the pod alone, and is to run once, has failed.
func TestCommandThatDoesNotExist(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.FailStarts(1, noEntry)
		pod := grouptest.NewPod("once")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.run(pod)
		if status := n.phase(pod); status.Phase != corev1.PodFailed || !strings.Contains(status.Message, noEntry) {
			n.Errorf("%+v", status)
		}
	})
}

// What ECS refuses of a request to run a task is about the node, and not about the pod.
func TestSettingsThatAreRefused(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("waits")
		n.cluster.SetPod(pod)
		for _, refusal := range [][3]string{
			{"RegisterTaskDefinition", "ClientException", "Role is not valid"},
			{"RunTask", "InvalidParameterException", "The security group 'sg-1' does not exist"},
			{"RunTask", "PlatformUnknownException", "The specified platform version does not exist."},
			{"RunTask", "ClientException", "The requested configuration is not supported"},
			{"RunTask", "UnsupportedFeatureException", "not in this region"},
		} {
			n.world.Refuse(refusal[0], 1, &grouptest.Refusal{Status: 400, Code: refusal[1], Message: refusal[2]})
			err := n.CreatePod(n.Context(), pod)
			if _, later := errdefs.RetryAfter(err); err == nil || errdefs.IsPermanent(err) || !later || !strings.Contains(err.Error(), refusal[2]) {
				n.Errorf("%s: %v", refusal[1], err)
			}
			time.Sleep(2 * time.Minute)
		}
		n.run(pod)
	})
	if err := classify(podgroup.ActionCreate, &smithy.OperationError{OperationName: "RegisterTaskDefinition", Err: &smithy.GenericAPIError{Code: "ClientException", Message: "Container.image should not be null or empty."}}); !errdefs.IsPermanent(err) {
		t.Error(err)
	}
}

// A pod that is deleted while its task is run again has no task afterwards.
func TestTaskIsRunAgainDuringADeletion(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.FailStarts(1, noRole)
		pod := grouptest.NewPod("waits")
		n.run(pod)
		n.phase(pod)
		n.world.Delay("RunTask", 1, 10*time.Second)
		time.Sleep(time.Minute)
		listed := make(chan error)
		go func() { // ends with the list
			_, err := n.GetPods(n.Context())
			listed <- err
		}()
		time.Sleep(5 * time.Second)
		if err := n.DeletePod(n.Context(), pod); err != nil {
			n.Fatal(err)
		}
		if err := <-listed; err != nil || n.world.Calls("RunTask") != 2 {
			n.Fatalf("%v, %d calls", err, n.world.Calls("RunTask"))
		}
		n.cluster.RemovePod(pod)
		time.Sleep(time.Minute)
		if pods, err := n.GetPods(n.Context()); err != nil || len(pods) != 0 || len(n.server.Definitions()) != 0 {
			n.Errorf("%v, %v, definitions %v", pods, err, n.server.Definitions())
		}
	})
}

// A task that is run again has the roles of the configuration, which may have been the reason. A
// pod that the API does not show yet has not failed.
func TestRolesThatAreCorrected(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.FailStarts(1, noRole)
		pod := grouptest.NewPod("waits")
		n.run(pod)
		n.phase(pod)
		cfg, role := testConfig(), "arn:aws:iam::123456789012:role/corrected"
		cfg.ExecutionRoleArn = role
		n.cluster.RemovePod(pod)
		n.Provider = n.another(n.cluster.Config(), cfg)
		if pods, err := n.GetPods(n.Context()); err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodPending {
			n.Fatalf("%v, %v", pods, err)
		}
		n.cluster.SetPod(pod)
		for range 10 {
			n.phase(pod)
		}
		all := n.world.Units(nil)
		task := all[len(all)-1].Spec.Data.(ecstest.Task)
		if o := task.Run.Overrides; len(all) != 2 || o == nil || aws.ToString(o.ExecutionRoleArn) != role || aws.ToString(o.TaskRoleArn) != roleARN {
			n.Errorf("%d tasks, the overrides are %+v", len(all), o)
		}
		if status := n.phase(pod); status.Phase != corev1.PodRunning {
			n.Errorf("%+v", status)
		}
	})
}

// Tasks of others that cannot be started are not touched.
func TestTasksOfOthersThatDoNotStart(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		n.server.FailStarts(3, noRole)
		for range 3 {
			pod := grouptest.NewPod("other")
			pod.UID = "service"
			other := grouptest.NewCluster("home")
			config := other.Config()
			config.Node.Name = "other"
			p := n.another(config, testConfig())
			other.SetPod(pod)
			if err := p.CreatePod(n.Context(), pod); err != nil {
				n.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if _, err := n.GetPods(n.Context()); err != nil || len(n.backend.attempts.waiting)+len(n.backend.deleted) != 0 {
			n.Errorf("%v, %v waiting, %v deleted", err, n.backend.attempts.waiting, n.backend.deleted)
		}
	})
}
