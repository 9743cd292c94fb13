package fargate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

var _ podgroup.EmptyConfirmer = (*backend)(nil)

// ConfirmEmpty implements podgroup.EmptyConfirmer: lists of ECS may lack tasks for a while, and
// those of another cluster or region, to which a changed configuration leads, have none of the
// node's. The ARN of a task has the place of it.
func (b *backend) ConfirmEmpty(ctx context.Context, unitID string, pod *corev1.Pod) error {
	task, err := arn.Parse(unitID)
	if err != nil {
		return nil // it is no task
	}
	cluster := b.cfg.ClusterName
	if parts := strings.Split(task.Resource, "/"); len(parts) == 3 { // older ARNs do not have it
		cluster = parts[1]
	}
	found, err := b.api.DescribeTasks(ctx, &ecs.DescribeTasksInput{Cluster: &cluster, Tasks: []string{unitID}}, func(o *ecs.Options) { o.Region = task.Region })
	if errors.As(err, new(*types.ClusterNotFoundException)) { // it is gone with its tasks, or in another account
		return b.confirmAccount(ctx, task.AccountID, pod)
	}
	if err = classify(podgroup.ActionLog, err); errdefs.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("the list has no task of this node, and whether that of pod %s/%s, in cluster %s of %s, is gone cannot be found out: %w", pod.Namespace, pod.Name, cluster, task.Region, err)
	}
	for i := range found.Tasks {
		if t := &found.Tasks[i]; aws.ToString(t.LastStatus) != statusStopped {
			return fmt.Errorf("the list has no task of this node, while that of pod %s/%s is %s in cluster %s of %s: the list is late, or region or clusterName were changed; set them back, or stop the tasks there",
				pod.Namespace, pod.Name, aws.ToString(t.LastStatus), cluster, task.Region)
		}
	}
	return nil
}

// confirmAccount returns an error unless the cluster of the configuration is in an account.
func (b *backend) confirmAccount(ctx context.Context, account string, pod *corev1.Pod) error {
	found, err := b.api.DescribeClusters(ctx, &ecs.DescribeClustersInput{Clusters: []string{b.cfg.ClusterName}})
	if err != nil {
		return fmt.Errorf("the list has no task of this node, and whether the credentials are of account %s, which has that of pod %s/%s, cannot be found out: %w", account, pod.Namespace, pod.Name, classify(podgroup.ActionLog, err))
	}
	for i := range found.Clusters {
		if at, err := arn.Parse(aws.ToString(found.Clusters[i].ClusterArn)); err == nil && at.AccountID != account {
			return fmt.Errorf("the list has no task of this node, and the task of pod %s/%s was created in account %s, while the credentials are of %s: correct them; "+
				"or, if its tasks may stay there without this node, delete the pods with --force", pod.Namespace, pod.Name, account, at.AccountID)
		}
	}
	return nil
}
