#!/bin/bash
# Models of the dataset DATA with 50, 100, 200 and 400 topics, one in each task of an array:
#
#   sbatch slurm-array.sh DATA
#
# A task whose time is over is queued again and goes on, until its model is done. docs/scripts.md explains it.

#SBATCH --job-name=topics
#SBATCH --array=50,100,200,400
#SBATCH --time=04:00:00
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=topics-%a.txt

# The state of a run has to outlive the job: it stays in the run, not on the node. Only temporary files go there.
export TMPDIR=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}

seconds_left=$((SLURM_JOB_END_TIME - $(date +%s)))

ooc train lda "$1" "topics-$SLURM_ARRAY_TASK_ID" --topics "$SLURM_ARRAY_TASK_ID" --resume \
    --max-time $((seconds_left - 300)) \
    --workers "$SLURM_CPUS_PER_TASK" --memory $((SLURM_MEM_PER_NODE * 4 / 5))MiB
status=$?

if [ $status -eq 75 ]; then
    exec scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit $status
