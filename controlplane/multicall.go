package main

import (
	"os"
	_ "time/tzdata" // time zones of CronJobs, as in the real kube-apiserver and kube-controller-manager

	_ "k8s.io/client-go/plugin/pkg/client/auth" // client auth plugins of kubectl
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of client-go
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Names of the components: the first argument of the binary, the name in the
// log and the name that "controlplane restart" takes.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	schedulerName         = "kube-scheduler"
	kubectlName           = "kubectl"
)

// multicall maps the first argument to the program that it stands for. Each
// one reads os.Args and returns its exit code.
var multicall = map[string]func() int{
	etcdName:              runEtcd,
	apiServerName:         func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	controllerManagerName: func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	schedulerName:         func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	kubectlName:           runKubectl,
}

// runKubectl does what k8s.io/kubernetes/cmd/kubectl does.
func runKubectl() int {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		kubectlutil.CheckErr(err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits
	}
	return 0
}
