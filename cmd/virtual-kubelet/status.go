package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/statuspage"
)

const statusHelp = `Print what virtual nodes do: their health, how far their pods have come, with the last error
and the next try of each, the calls of the provider, and recent events. It is what
the page /status of a node shows in a browser, by kubectl proxy.

Without a name it prints a line for each node with the label type=virtual-kubelet. The
account needs the rights to list nodes, and to get their subresource nodes/proxy.

Exit status:
  0  all of the nodes are ready
  1  a node is not, or could not be asked
  2  the command line is wrong`

// statusOptions are the values of the flags.
type statusOptions struct {
	kubeconfig string
	output     string
	timeout    time.Duration
}

func newStatusCommand() *cobra.Command {
	var o statusOptions
	command := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Print what nodes and their pods do",
		Long:  statusHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d arguments, want the name of one node, or none for all", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != "text" && o.output != "json" {
				return usagef("--output %q is neither text nor json", o.output)
			}
			config, _, err := kubeConfig(&options{kubeconfig: o.kubeconfig})
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return o.one(cmd.Context(), client, args[0], cmd.OutOrStdout())
			}
			return o.all(cmd.Context(), client, cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)")
	flags.StringVarP(&o.output, "output", "o", "text", "output format: text or json")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long a node may take to answer")
	return command
}

// asksAtOnce is how many nodes are asked at the same time.
const asksAtOnce = 16

// maxAnswer is how many bytes of an answer are read: those of some 100,000 pods.
const maxAnswer = 64 << 20

var errNotReady = errors.New("not ready")

// ask gets the status of a node by the API server.
func (o *statusOptions) ask(ctx context.Context, client kubernetes.Interface, node string) (*statuspage.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var body []byte
	answer, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy", "status").
		SetHeader("Accept", "application/json").Stream(ctx)
	if err == nil {
		defer answer.Close()
		body, err = io.ReadAll(io.LimitReader(answer, maxAnswer))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get the status of node %s (is virtual-kubelet running there, and may the account get nodes/proxy?): %w", node, err)
	}
	var status statuspage.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return nil, fmt.Errorf("node %s answers what no virtual kubelet of this version would, so it is none, or an older one: %w", node, err)
	}
	return &status, nil
}

// one prints all that is known of a node.
func (o *statusOptions) one(ctx context.Context, client kubernetes.Interface, node string, to io.Writer) error {
	status, err := o.ask(ctx, client, node)
	if err != nil {
		return err
	}
	if o.output == "json" {
		err = writeJSON(to, status)
	} else {
		err = status.Text(to)
	}
	if err == nil && !status.Ready() {
		return fmt.Errorf("node %s is %w", node, errNotReady)
	}
	return err
}

// all prints a line for each node, or the JSON of all.
func (o *statusOptions) all(ctx context.Context, client kubernetes.Interface, to io.Writer) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=virtual-kubelet"})
	if err != nil {
		return fmt.Errorf("cannot list the nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return errors.New("no node has the label type=virtual-kubelet: give the name of one")
	}
	statuses, problems := make([]*statuspage.Status, len(nodes.Items)), make([]error, len(nodes.Items))
	var asking errgroup.Group
	asking.SetLimit(asksAtOnce)
	for i := range nodes.Items {
		asking.Go(func() error {
			name := nodes.Items[i].Name
			statuses[i], problems[i] = o.ask(ctx, client, name)
			if problems[i] == nil && !statuses[i].Ready() {
				problems[i] = fmt.Errorf("node %s is %w", name, errNotReady)
			}
			return nil
		})
	}
	_ = asking.Wait() // the errors are in problems
	if o.output == "json" {
		err = writeJSON(to, slices.DeleteFunc(statuses, func(s *statuspage.Status) bool { return s == nil }))
		return errors.Join(append(problems, err)...)
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, statuspage.LineHeader)
	for i, status := range statuses {
		if status == nil {
			fmt.Fprintf(w, "%s\tunknown\t-\t-\t-\n", nodes.Items[i].Name)
			continue
		}
		fmt.Fprintln(w, status.Line())
	}
	return errors.Join(append(problems, w.Flush())...)
}

func writeJSON(to io.Writer, v any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
