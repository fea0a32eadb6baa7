#!/bin/bash
# One model trained by all nodes of a job, a rank on each:
#
#   sbatch slurm-ring.sh SHARDS RUN
#
# SHARDS and RUN are paths with {rank}, on a disk that all nodes share: shards/shard-{rank} topics-{rank}.
# A job whose time is over is queued again and goes on, until the model is done. docs/schedulers.md explains it.

#SBATCH --job-name=topics
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=topics.txt

export OOC_KEY_FILE=$PWD/ring-$SLURM_JOB_ID.key
[ -e "$OOC_KEY_FILE" ] || (umask 077; openssl rand -hex 32 > "$OOC_KEY_FILE")

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OOC_RENDEZVOUS=$first:$((20000 + SLURM_JOB_ID % 10000))

# srun does not take over --cpus-per-task of sbatch (since Slurm 22.05): the rank would have one processor.
srun --kill-on-bad-exit=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ooc train lda "$1" "$2" --topics 1000 --resume --workers "$SLURM_CPUS_PER_TASK"
status=$?

if [ $status -eq 75 ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
rm -f "$OOC_KEY_FILE"
exit $status
