#!/bin/bash
# A 1.5 B model, data parallel, on four nodes.
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-4}
MASTER_ADDR=localhost
CHECKPOINTS=$1   # where it is saved

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
    --master_port 6000
)

GPT_ARGS="
    --num-layers 48 --hidden-size 1600 --num-attention-heads 25
    --seq-length 1024 --max-position-embeddings 1024
"

TRAINING_ARGS=(
    --micro-batch-size 4
    --global-batch-size 512
    --rampup-batch-size 64 64 1000000
    --train-iters 300000   # about 157 G tokens
    --bf16
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --lr 1.5e-4 --min-lr 1e-5 --lr-decay-style cosine
    --clip-grad 1.0
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 1
)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    $GPT_ARGS \
    ${TRAINING_ARGS[@]} \
    --data-path data/gpt2_text_document --split 949,50,1 \
    --save $CHECKPOINTS --load $CHECKPOINTS \
    --log-interval 100 --save-interval 10000
