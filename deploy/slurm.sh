#!/bin/bash
#SBATCH --job-name=twopass
#SBATCH --array=0-7
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=INT@120
# Ends two minutes before the time limit like after Ctrl-C. A requeued or repeated job continues with what is not stored.
set -euo pipefail
export ENGINE="${ENGINE:-vllm}" PAGE_WORKERS="$SLURM_CPUS_PER_TASK"
srun twopass read "$1" --output "$2" --log-format json
