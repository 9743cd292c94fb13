//go:build integration

package slurm

import (
	corev1 "k8s.io/api/core/v1"
)

// A job that somebody has stopped, which squeue no longer finds as one that runs, ends with its pod.
func stopped(s *site) {
	pod := s.pod("stopped", "sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	dir, job := s.directory(pod), s.job(pod)
	state := func() string {
		return s.slurm.Run(s.T, "squeue", "--noheader", "--states=all", "--jobs="+job, "--format=%T")
	}
	s.slurm.Run(s.T, "scancel", "--signal=STOP", job)
	s.slurm.Until(s.T, "the job is stopped", func() bool { return state() == "STOPPED" })
	must(s.T, s.p.DeletePod(s.Context(), pod))
	s.slurm.Until(s.T, "the job has ended", func() bool { return state() == "CANCELLED" })
	s.await(pod, "")
	s.gone(dir)
}

// Other jobs of the user may have any names and comments.
func foreign(s *site) {
	s.slurm.Run(s.T, "sbatch", "--hold", "--output=/dev/null", "--job-name=one\ntwo|three", "--comment=(null)", "--wrap=true")
	s.slurm.Run(s.T, "sbatch", "--hold", "--output=/dev/null", "--job-name=four", "--comment=one\nnow | then", "--wrap=true")
	pod := s.pod("foreign", "exit 3")
	s.create(pod)
	s.await(pod, corev1.PodFailed)
}
