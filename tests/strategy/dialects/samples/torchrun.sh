#!/usr/bin/env bash
set -euo pipefail
export NCCL_DEBUG=WARN
HEAD=${HEAD:-node0}

OMP_NUM_THREADS=8 python -m torch.distributed.run --nnodes=2:4 --nproc_per_node 8 \
  --rdzv_backend c10d --rdzv_endpoint "$HEAD:29500" --max-restarts=3 \
  -m mypkg.train --per_device_train_batch_size 2 --gradient_accumulation_steps=4 \
  --bf16 --gradient_checkpointing true --output_dir "runs/$(date +%F)"
