// Package slurm is a provider that runs pods as jobs of a Slurm cluster, as one user, with
// the commands of Slurm on this machine or, by ssh, on another one.
//
// A pod has a directory on a file system that all machines share, and a job of its name. The
// job runs the script job.bash, which runs the containers and writes what becomes of them
// to a file, state, in the directory: squeue knows the job, and forgets it after MinJobAge,
// but not its containers. A list is one call: squeue, and then the states of all pods. No
// table has to be parsed whose form depends on the version of Slurm, as JSON's does.
//
// The commands on the machine with Slurm's are verbs of one script (internal/login): a call
// is one command, also over ssh. Secrets are in files that the user alone can read, not in
// arguments, job scripts or comments, which others can see.
//
// The environment of the agent does not reach the jobs.
package slurm
