package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

var survivalChecks = []Check{
	{Name: "restart-running", Title: "a pod that runs goes on in the same containers while the agent is restarted", Needs: []Capability{SurvivesRestart}, Restarts: true, run: checkRestartRunning},
	{Name: "restart-finished", Title: "a pod that has finished before the agent is restarted, or meanwhile, is not run again", Needs: []Capability{SurvivesRestart, Commands, Logs}, Restarts: true, run: checkRestartFinished},
	{Name: "late-deletion", Title: "a pod whose deletion the agent sees when its time is long up has its grace period all the same", Needs: []Capability{SurvivesRestart, Commands, Logs}, Restarts: true, run: checkLateDeletion},
}

// restart restarts the agent, and waits until a pod that is created then is ready:
// what the agent does about those that it finds, it has begun to do.
func (s *Scope) restart(ctx context.Context, down func(context.Context) error) error {
	if err := s.Restart(ctx, down); err != nil {
		return fmt.Errorf("restart the agent of the node: %w", err)
	}
	_, err := s.createAnd(ctx, s.Pod(s.LongRunning("main")), "is ready, after the agent was restarted", Ready)
	return err
}

// nothing is done while the agent is down.
func nothing(context.Context) error { return nil }

func checkRestartRunning(ctx context.Context, s *Scope) error {
	before, err := s.createAnd(ctx, s.Pod(s.LongRunning("main")), "is ready", Ready)
	if err != nil {
		return err
	}
	if err := s.restart(ctx, nothing); err != nil {
		return err
	}
	if err := s.WaitHeld(ctx, before, true); err != nil {
		return err
	}
	_, err = s.Follow(ctx, before, "is what it was, and is ready", nil, func(pod *corev1.Pod, deleted bool) (bool, error) {
		if err := SameContainers(before, pod); err != nil {
			return false, err
		}
		return Ready(pod, deleted)
	})
	return err
}

// once prints a line that no other run prints.
const once = "cat /proc/sys/kernel/random/uuid"

// checkRestartFinished has a pod that finishes before the agent ends, and one that
// finishes while it is down. Their logs say how often they have run.
func checkRestartFinished(ctx context.Context, s *Scope) error {
	const while = 5 * time.Second
	finished, err := s.proves(ctx, s.job(once))
	if err != nil {
		return err
	}
	text, err := s.logOfOneRun(ctx, finished, "")
	if err != nil {
		return err
	}
	job := s.job(fmt.Sprintf("sleep %d; %s; exit %d", int(while.Seconds()), once, proven))
	finishing, err := s.createAnd(ctx, job, "runs or has ended", begun)
	if err != nil {
		return err
	}
	if err := s.restart(ctx, func(ctx context.Context) error { return periodic.Sleep(ctx, while+3*time.Second) }); err != nil {
		return err
	}
	last, err := s.Follow(ctx, finishing, "ends", nil, exists(ended))
	if err == nil {
		err = haveProven(last)
	}
	if err != nil {
		return fmt.Errorf("a pod finished while the agent was down: %w", err)
	}
	if err := s.ranOnce(ctx, finishing, last, ""); err != nil {
		return fmt.Errorf("a pod finished while the agent was down: %w", err)
	}
	now, err := s.Follow(ctx, finished, "has ended", nil, exists(ended))
	if err == nil {
		err = s.ranOnce(ctx, finished, now, text)
	}
	if err != nil {
		return fmt.Errorf("a pod had finished before the agent was restarted: %w", err)
	}
	return nil
}

// ranOnce returns an error unless the container of a pod was not run again since it was
// as in before. text is its log, if that is known.
func (s *Scope) ranOnce(ctx context.Context, before, now *corev1.Pod, text string) error {
	if err := SameContainers(before, now); err != nil {
		return err
	}
	if was, err := terminated(before, "main"); err == nil {
		is, err := terminated(now, "main")
		if err != nil {
			return err
		}
		if is.ExitCode != was.ExitCode || is.Reason != was.Reason || !is.FinishedAt.Equal(&was.FinishedAt) {
			return fmt.Errorf("its container had ended with %d, %s, at %v; now it is reported to have ended with %d, %s, at %v",
				was.ExitCode, was.Reason, was.FinishedAt, is.ExitCode, is.Reason, is.FinishedAt)
		}
	}
	if _, err := s.logOfOneRun(ctx, now, text); err != nil {
		return fmt.Errorf("its log is to be that of its one run, and kept until it is deleted: %w", err)
	}
	return nil
}

// logOfOneRun returns the log of a pod that has ended, which has to be that of one run. A
// provider may have it a moment later than the end.
func (s *Scope) logOfOneRun(ctx context.Context, pod *corev1.Pod, before string) (text string, err error) {
	err = s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{}, settling(func(log string) error {
		text = log
		return isOneRun(before, log)
	}))
	return text, err
}

// isOneRun returns an error unless a log is that of one run: the one whose log was
// before, if that is known.
func isOneRun(before, log string) error {
	if strings.Count(log, "\n") != 1 || before != "" && log != before {
		return fmt.Errorf("each run prints a line of its own; the log was %q, and is %q", before, log)
	}
	return nil
}

// checkLateDeletion deletes a pod while the agent is down, for longer than the grace
// period. The pod's container takes a moment to end by itself.
func checkLateDeletion(ctx context.Context, s *Scope) error {
	const grace = 6
	pod := s.job(fmt.Sprintf("trap 'sleep 1; exit %d' TERM; echo waits; sleep 100000 & wait", proven))
	pod, err := s.createSaying(ctx, pod, "waits\n")
	if err != nil {
		return err
	}
	last, err := s.Follow(ctx, pod, "is gone", func(ctx context.Context) error {
		return s.restart(ctx, func(ctx context.Context) error {
			return errors.Join(s.Delete(ctx, pod, grace), periodic.Sleep(ctx, (grace+1)*time.Second))
		})
	}, Gone)
	if err != nil {
		return err
	}
	if err := haveProven(last); err != nil {
		return fmt.Errorf("the grace period counts from when the agent sees the deletion, and nothing is killed before: %w", err)
	}
	return nil
}
