package fargate

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

// A request that finds no capacity succeeds without a task, and ECS answers so for a day if it is
// repeated with the same token.
func TestCapacityThatComesBack(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("waits")
		n.cluster.SetPod(pod)
		n.server.LackCapacity(2)
		for range 2 {
			if err := n.CreatePod(n.Context(), pod); err == nil || errdefs.IsPermanent(err) {
				n.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
		}
		n.run(pod)
	})
}

// ECS knows the token of a request that has found no capacity for a day. A process that begins meanwhile
// with another configuration is refused with it, and makes another one; not if there is a task.
func TestAnotherConfigurationAfterLackOfCapacity(t *testing.T) {
	for _, isRun := range []bool{false, true} {
		onNode(t, nil, func(n *pods) {
			pod := grouptest.NewPod("waits")
			n.cluster.SetPod(pod)
			if isRun {
				n.world.Lose("RunTask", 1)
			} else {
				n.server.LackCapacity(1)
			}
			if err := n.CreatePod(n.Context(), pod); err == nil || errdefs.IsPermanent(err) {
				n.Fatal(err)
			}
			cfg := testConfig()
			cfg.Subnets = append(cfg.Subnets, "subnet-2")
			p := n.another(n.cluster.Config(), cfg)
			for i := range 2 {
				if err := p.CreatePod(n.Context(), pod); errdefs.IsPermanent(err) || (err == nil) != (!isRun && i == 1) {
					n.Errorf("attempt %d, while there is a task: %t: %v", i, isRun, err)
				}
				time.Sleep(2 * time.Minute)
			}
			if units := n.world.Units(nil); len(units) != 1 {
				n.Errorf("there are %d tasks", len(units))
			}
		})
	}
}

// ECS refuses a request as invalid if EC2 has refused what it has asked for it.
func TestErrorsOfOthers(t *testing.T) {
	for text, throttled := range map[string]bool{
		"Error retrieving subnet information for [subnet-1]: Rate exceeded (ErrorCode: Throttling)":                                         true,
		"Error retrieving security group information for [sg-1]: Request limit exceeded. (ErrorCode: RequestLimitExceeded)":                 true,
		"Error retrieving subnet information for [subnet-1]: The subnet ID 'subnet-1' does not exist (ErrorCode: InvalidSubnetID.NotFound)": false,
		"Unable to assume the service linked role. Please verify that the ECS service linked role exists.":                                  false,
		"ECS was unable to assume the role 'arn:aws:iam::123456789012:role/pods' that was provided for this task.":                          false,
		"The requested CPU configuration is above your limit":                                                                               false,
	} {
		err := classify(podgroup.ActionCreate, &smithy.GenericAPIError{Code: "InvalidParameterException", Message: text})
		delay, later := errdefs.RetryAfter(err)
		if errdefs.IsPermanent(err) || !later || throttled != (delay < time.Minute) {
			t.Errorf("%v, again after %s", err, delay)
		}
	}
	if err := classify(podgroup.ActionCreate, &smithy.GenericAPIError{Code: "InvalidParameterException", Message: "Family contains invalid characters."}); !errdefs.IsPermanent(err) {
		t.Error(err)
	}
}

// StopTask deletes the tags of a task.
func TestTaskThatAPersonStops(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("stopped")
		n.run(pod)
		if _, err := n.backend.api.StopTask(n.Context(), &ecs.StopTaskInput{Cluster: new(ecstest.Cluster), Task: new("arn:aws:ecs:eu-west-1:123456789012:task/home/" + n.id(pod)), Reason: new("by hand")}); err != nil {
			n.Fatal(err)
		}
		if status := n.phase(pod); status.Phase != corev1.PodFailed || status.Reason != "UserInitiated" || !isDisrupted(status) {
			n.Errorf("%+v", status)
		}
	})
}

func isDisrupted(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

func TestHostThatIsIll(t *testing.T) {
	if f := failure(&types.Task{StopCode: types.TaskStopCodeInfrastructureHealth}); f == nil || !f.Disrupted {
		t.Errorf("%+v", f)
	}
}

// A container may answer the signal of an interruption with 0: its work is not done.
func TestInterruptionThatEndsWell(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("polite")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.run(pod)
		if err := n.server.Interrupt(pod.Name); err != nil {
			n.Fatal(err)
		}
		if err := n.world.Change(pod.Name, func(u *grouptest.Unit) { u.Containers[0].Now.ExitCode = 0 }); err != nil {
			n.Fatal(err)
		}
		if status := n.phase(pod); status.Phase != corev1.PodFailed || status.Reason != "SpotInterruption" || !isDisrupted(status) {
			n.Errorf("%+v", status)
		}
	})
}

// The answer to a repetition does not say how a task has ended that has stopped meanwhile.
func TestCreationThatIsRepeatedLate(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("quick")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.cluster.SetPod(pod)
		n.world.Lose("RunTask", 1)
		if err := n.CreatePod(n.Context(), pod); err == nil {
			n.Fatal("the answer was not lost")
		}
		time.Sleep(10 * time.Second)
		if err := n.world.Exit(pod.Name, "main", 0); err != nil {
			n.Fatal(err)
		}
		n.world.Hide(true)
		if err := n.CreatePod(n.Context(), pod); err != nil {
			n.Fatal(err)
		}
		if status := n.phase(pod); status.Phase != corev1.PodPending {
			n.Errorf("before a list has it: %+v", status)
		}
		n.world.Hide(false)
		if status := n.phase(pod); status.Phase != corev1.PodSucceeded {
			n.Errorf("%+v", status)
		}
	})
}

// withSecret returns a pod with a variable of a Secret, and what resolves it.
func withSecret(name string) (pod *corev1.Pod, resolve func(*corev1.Pod)) {
	pod = grouptest.NewPod(name)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}
	return pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "hush"}} }
}

// Secrets are deleted, also those whose definition could not be registered, or not be deleted.
func TestSecretsAreNotLeft(t *testing.T) {
	for _, fault := range []struct {
		action, code string
		created      bool
	}{{"RegisterTaskDefinition", "ClientException", false}, {"DeleteTaskDefinitions", "AccessDeniedException", true}, {"DeleteSecret", "ThrottlingException", true}} {
		t.Run(fault.action, func(t *testing.T) {
			onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
				n.world.Refuse(fault.action, 1, &grouptest.Refusal{Status: 400, Code: fault.code, Message: "not now"})
				pod, resolve := withSecret("refused")
				n.cluster.SetPod(pod)
				resolved := pod.DeepCopy()
				resolve(resolved)
				if err := n.CreatePod(n.Context(), resolved); (err == nil) != fault.created {
					n.Fatal(err)
				}
				if fault.created {
					n.remove(pod)
				} else {
					n.cluster.RemovePod(pod)
				}
				other := grouptest.NewPod("other")
				n.run(other)
				for range 250 { // as a controller asks
					n.phase(other)
				}
				if left := n.secrets(); len(left) != 0 || len(n.server.Inactive()) != 0 {
					n.Errorf("%d secrets are left, and definitions %v", len(left), n.server.Inactive())
				}
			})
		})
	}
}

// A secret that was deleted may exist on for some time, or be gone while its definition is there.
func TestSecretsThatAreGone(t *testing.T) {
	onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
		first, resolve := withSecret("first")
		n.run(first, resolve)
		n.server.SlowSecrets(true)
		n.remove(first)
		second, _ := withSecret("second")
		n.cluster.SetPod(second)
		resolved := second.DeepCopy()
		resolve(resolved)
		if err := n.CreatePod(n.Context(), resolved); !errdefs.IsUnavailable(err) {
			n.Errorf("while the secret is being deleted: %v", err)
		}
		n.server.SlowSecrets(false)
		if env := n.server.Environment(n.run(second, resolve), "main"); env["SECRET"] != "hush" {
			n.Errorf("%v", env)
		}
		n.server.DropSecrets()
		n.backend.mu.Lock()
		clear(n.backend.uses.known) // as in another process
		n.backend.mu.Unlock()
		third, _ := withSecret("third")
		if env := n.server.Environment(n.run(third, resolve), "main"); env["SECRET"] != "hush" {
			n.Errorf("%v", env)
		}
	})
}

// A list that is empty for a moment does not mean that definitions, and their secrets, have no task.
func TestEmptyList(t *testing.T) {
	onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
		pod, resolve := withSecret("starts")
		n.run(pod, resolve)
		pod.Status = *n.phase(pod) // which says in the API that the pod has had a unit
		n.cluster.SetPod(pod)
		n.world.Hide(true)
		n.backend.mu.Lock()
		n.backend.uses.swept = time.Time{} // a sweep is due
		n.backend.mu.Unlock()
		for range 3 {
			time.Sleep(10 * time.Second)
			if _, err := n.GetPods(n.Context()); !errdefs.IsUnavailable(err) {
				n.Errorf("a list that lacks the task of a pod that runs is believed: %v", err)
			}
		}
		if len(n.server.Definitions()) != 1 || len(n.secrets()) != 1 {
			n.Errorf("definitions %v, %d secrets", n.server.Definitions(), len(n.secrets()))
		}
		n.world.Hide(false)
		n.phase(pod)
		n.remove(pod)
		if len(n.server.Definitions()) != 0 || len(n.secrets()) != 0 {
			n.Errorf("left over: %v, %d secrets", n.server.Definitions(), len(n.secrets()))
		}
	})
}

// A configuration with another cluster, which is empty, does not mean that the pods are gone. Once
// their tasks are, it counts.
func TestAnotherCluster(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("there")
		n.run(pod)
		pod.Status = *n.phase(pod)
		n.cluster.SetPod(pod)
		cfg := testConfig()
		cfg.ClusterName = "other"
		p := n.another(n.cluster.Config(), cfg)
		for range 10 {
			time.Sleep(30 * time.Second)
			if all, err := p.GetPods(n.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "cluster home of eu-west-1") {
				n.Fatalf("there are %d pods, %v", len(all), err)
			}
		}
		if err := n.world.Remove("there"); err != nil {
			n.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if all, err := p.GetPods(n.Context()); err != nil || len(all) != 0 {
			n.Errorf("the task is gone, and there are %d pods, %v", len(all), err)
		}
	})
}

// Credentials of another account do not mean that the pods are gone, whether or not that has a
// cluster of the name.
func TestAnotherAccount(t *testing.T) {
	for name, want := range map[string]string{ecstest.Cluster: "Your accountId is 210987654321", "other": "created in account " + ecstest.HomeAccount} {
		onNode(t, nil, func(n *pods) {
			pod := grouptest.NewPod("there")
			n.run(pod)
			pod.Status = *n.phase(pod)
			n.cluster.SetPod(pod)
			n.server = ecstest.New(grouptest.New(time.Second))
			n.server.Account = "210987654321"
			if name != ecstest.Cluster {
				n.server.RemoveCluster()
			}
			cfg := testConfig()
			cfg.ClusterName = name
			grouptest.CheckUnfound(n.T, n.another(n.cluster.Config(), cfg), want)
		})
	}
}

// A cluster that was deleted in the same account is gone with its tasks.
func TestClusterThatWasDeleted(t *testing.T) {
	onNode(t, nil, func(n *pods) {
		pod := grouptest.NewPod("there")
		n.run(pod)
		pod.Status = *n.phase(pod)
		n.cluster.SetPod(pod)
		n.server = ecstest.New(grouptest.New(time.Second))
		n.server.RemoveCluster()
		cfg := testConfig()
		cfg.ClusterName = "other"
		p := n.another(n.cluster.Config(), cfg)
		time.Sleep(time.Minute)
		if all, err := p.GetPods(n.Context()); err != nil || len(all) != 0 {
			n.Errorf("there are %d pods, %v", len(all), err)
		}
	})
}

// A process may end between the calls that create secrets, definitions and tasks. The next one
// deletes what is left, also if it creates nothing.
func TestWhatAProcessHasLeft(t *testing.T) {
	onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
		kept, resolve := withSecret("kept")
		n.run(kept, resolve)
		first := n.backend.uses.prefix
		for _, family := range []string{first + "crashed", first + "late", "vk-other-"} {
			if _, err := n.backend.secrets.CreateSecret(n.Context(), &secretsmanager.CreateSecretInput{Name: new(family + valuesSecret), SecretString: new("hush")}); err != nil {
				n.Fatal(err)
			}
		}
		if err := n.server.Leave(first + "left"); err != nil {
			n.Fatal(err)
		}
		cfg := testConfig()
		cfg.SecretsManager = true
		p := n.another(n.cluster.Config(), cfg)
		list := func(minutes int) {
			for range 2 * minutes {
				time.Sleep(30 * time.Second)
				if _, err := p.GetPods(n.Context()); err != nil {
					n.Fatal(err)
				}
			}
		}
		list(6)
		if len(n.secrets()) != 4 || len(n.server.Definitions()) != 1 {
			n.Errorf("young secrets: %d are left, definitions %v", len(n.secrets()), n.server.Definitions())
		}
		list(35)
		if left := n.secrets(); len(left) != 2 || left["vk-other-"+valuesSecret] == "" {
			n.Errorf("the secrets are %v", left)
		}
	})
}

// Who sees the names of definitions must not be able to find out values by trying them: these are
// made with a key that is kept in Secrets Manager. Pods with the same values share a definition,
// also those that another process creates.
func TestNamesDoNotShowSecrets(t *testing.T) {
	var families []string
	for range 2 { // nodes with the same names, and another key
		onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
			first, resolve := withSecret("first")
			n.run(first, resolve)
			families = append(families, n.server.Definitions()...)
			cfg := testConfig()
			cfg.SecretsManager = true
			n.Provider = n.another(n.cluster.Config(), cfg)
			second, _ := withSecret("second")
			n.run(second, resolve)
			if names := n.server.Definitions(); len(names) != 1 || len(n.secrets()) != 1 || n.world.Calls("RegisterTaskDefinition") != 1 {
				n.Errorf("%v, %d secrets", names, len(n.secrets()))
			}
		})
	}
	if len(families) != 2 || families[0] == families[1] {
		t.Errorf("the names are %v", families)
	}
}

// The key is deleted once no secret is left whose name is made with it, and made again.
func TestKeyOfADrainedNode(t *testing.T) {
	onNode(t, func(c *Config) { c.SecretsManager = true }, func(n *pods) {
		list := func(minutes int) {
			for range 2 * minutes {
				time.Sleep(30 * time.Second)
				if _, err := n.GetPods(n.Context()); err != nil {
					n.Fatal(err)
				}
			}
		}
		for _, name := range []string{"first", "second"} {
			pod, resolve := withSecret(name)
			n.run(pod, resolve)
			list(40)
			if all := n.server.Secrets(); len(all) != 2 {
				n.Fatalf("while the pod runs there are %d secrets", len(all))
			}
			n.remove(pod)
			list(40)
			if all := n.server.Secrets(); len(all) != 0 {
				n.Fatalf("there is left %v", all)
			}
		}
	})
}

// Nodes that share an account are silent together when AWS has refused too many calls.
func TestNodesOfOneAccount(t *testing.T) {
	account := NewAccount()
	onNode(t, func(c *Config) { c.Account = account }, func(n *pods) {
		n.world.Refuse("RunTask", 1, &grouptest.Refusal{Status: 400, Code: "ThrottlingException", Message: "Rate exceeded"})
		cfg, other := testConfig(), grouptest.NewCluster("home")
		cfg.Account = account
		p := n.another(other.Config(), cfg)
		for i, node := range []*podgroup.Provider{n.Provider, p} {
			pod := grouptest.NewPod("of-" + strconv.Itoa(i))
			n.cluster.SetPod(pod)
			other.SetPod(pod)
			if err := node.CreatePod(n.Context(), pod); err == nil || n.world.Calls("RunTask") != 1 {
				n.Errorf("node %d: %v, %d calls", i, err, n.world.Calls("RunTask"))
			}
		}
	})
}
