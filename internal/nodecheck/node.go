package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say which node is checked, and with what.
type Options struct {
	// Name is the name of the node. Required.
	Name string
	// Namespace is where the pods are made. It exists, and has its default
	// service account. Defaults to "default".
	Namespace string
	// Image is the image of all containers. Required.
	Image string
	// Shell is the command to which a container's script is appended, such as
	// sh -c. Without one, containers run what the image says, and checks that
	// need Commands are not possible; the image then has to run until it is
	// stopped.
	Shell []string
	// RestartPolicy is that of pods that are no jobs. Defaults to Always.
	RestartPolicy corev1.RestartPolicy
	// UserAgent is that of all requests. Defaults to "virtual-kubelet-nodecheck".
	UserAgent string
	// Timeout is how long a check may take, without its cleaning up. Zero means
	// no limit.
	Timeout time.Duration
	// Patience is how long a single thing is waited for. Zero means as long as
	// the check may take.
	Patience time.Duration
	// Directories are where the provider keeps the files of pods, volumes and logs
	// among them, on this machine. Checks that look there are left out without.
	Directories []string
	// Restart ends the agent of the node, by its own means or with SIGKILL, calls
	// down, and starts the agent again, also if down fails or ctx has ended. Errors
	// of all three are returned. Checks that need it are left out where it is nil.
	Restart func(ctx context.Context, down func(context.Context) error) error
}

// DefaultImage has a shell, and what the scripts of the checks need.
const DefaultImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"

// DefaultShell returns the shell of DefaultImage.
func DefaultShell() []string { return []string{"sh", "-c"} }

const (
	defaultNamespace = "default"
	defaultUserAgent = "virtual-kubelet-nodecheck"
	// cleanupTimeout is how long the cleaning up of a check may take.
	cleanupTimeout = time.Minute
)

// Node is the node that is checked. It is safe for concurrent use.
type Node struct {
	Options
	Client kubernetes.Interface
	config *rest.Config // nil where there is only a client
}

// New makes a Node on the cluster of config. It does not talk to the cluster.
func New(config *rest.Config, opts Options) (*Node, error) {
	if opts.Name == "" {
		return nil, errors.New("no node is named")
	}
	n := NewForClient(nil, opts)
	n.config = rest.CopyConfig(config)
	n.config.UserAgent = n.UserAgent
	var err error
	if n.Client, err = kubernetes.NewForConfig(n.config); err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", config.Host, err)
	}
	return n, nil
}

// NewForClient makes a Node on the cluster of a client, without exec, attach and
// port-forward.
func NewForClient(client kubernetes.Interface, opts Options) *Node {
	if opts.Namespace == "" {
		opts.Namespace = defaultNamespace
	}
	if opts.UserAgent == "" {
		opts.UserAgent = defaultUserAgent
	}
	return &Node{Options: opts, Client: client}
}

// Ready returns nil if the node says that it is ready.
func (n *Node) Ready(ctx context.Context) error {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return ready(node)
}

func ready(node *corev1.Node) error {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("condition Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return errors.New("it has no condition Ready")
}
