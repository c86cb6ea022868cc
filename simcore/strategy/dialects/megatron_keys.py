"""Flags of Megatron-LM's ``megatron/training/arguments.py``, by their meaning for a prediction."""

from __future__ import annotations

from simcore.strategy import layout
from simcore.strategy.options import OPTIONS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Degrees of parallelism: flag to simcore's option.
DEGREES = {
    key: word for key, word in OPTIONS.launch_keys("megatron").items() if word in layout.DEGREES
}

#: Degrees that simcore does not have above 1.
NO_DEGREES = {
    "num-distributed-optimizer-instances": "a partly sharded optimizer",
    "encoder-tensor-model-parallel-size": "tensor parallelism",
    "encoder-pipeline-model-parallel-size": "pipeline parallelism",
}

#: Flags of the model that can be compared with models_db: flag to key of ``config``.
SHAPE = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "ffn-hidden-size": "ffn",
    "num-query-groups": "kv_heads",
}

#: Flags that ``megatron.py`` reads one by one.
TAKEN = _names(
    "num-layers-per-virtual-pipeline-stage sequence-parallel pipeline-model-parallel-layout "
    "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers micro-batch-size "
    "global-batch-size batch-size rampup-batch-size seq-length encoder-seq-length "
    "decoder-seq-length bf16 fp16 fp8-format fp4-format fp8 fp4 grad-reduce-in-bf16 "
    "accumulate-allreduce-grads-in-fp32 use-distributed-optimizer use-megatron-fsdp "
    "use-custom-fsdp data-parallel-sharding-strategy use-torch-fsdp2 "
    "torch-fsdp2-no-reshard-after-forward recompute-granularity recompute-method "
    "recompute-num-layers recompute-activations recompute-modules checkpoint-activations "
    "optimizer sgd-momentum optimizer-cpu-offload optimizer-offload-fraction "
    "cpu-offloading-num-layers cpu-offloading clip-grad ddp-bucket-size overlap-grad-reduce "
    "enable-cuda-graph external-cuda-graph cuda-graph-impl attention-backend use-flash-attn "
    "cuda-graph-scope expert-tensor-parallel-size moe-token-dispatcher-type "
    "moe-flex-dispatcher-backend moe-enable-deepep exp-avg-dtype exp-avg-sq-dtype "
    "main-grads-dtype main-params-dtype use-precision-aware-optimizer cp-comm-type "
    "moe-layer-recompute overlap-param-gather tp-comm-overlap "
    "moe-expert-capacity-factor moe-pad-expert-input-to-capacity "
    "overlap-moe-expert-parallel-comm no-async-tensor-model-parallel-allreduce "
    "deterministic-mode"
)

#: Flags that describe the model, which ``--model`` decides instead.
MODEL = _names(
    "encoder-num-layers decoder-num-layers kv-channels group-query-attention softmax-type "
    "window-size window-attn-skip-freq max-position-embeddings position-embedding-type "
    "relative-attention-num-buckets relative-attention-max-distance "
    "use-rotary-position-embeddings rotary-base rotary-percent rotary-interleaved "
    "rotary-seq-len-interpolation-factor use-rope-scaling rope-scaling-factor no-rope-freq "
    "no-position-embedding mrope-section make-vocab-size-divisible-by normalization norm-epsilon "
    "apply-layernorm-1p apply-residual-connection-post-layernorm openai-gelu squared-relu swiglu "
    "quick-geglu activation-func-clamp-value glu-linear-offset bert-no-binary-head "
    "untie-embeddings-and-output-weights multi-latent-attention mtp-num-layers "
    "mtp-loss-scaling-factor disable-bias-linear add-qkv-bias qk-layernorm qk-l2-norm "
    "attention-dropout hidden-dropout vocab-size padded-vocab-size vocab-extra-ids num-experts "
    "moe-layer-freq moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-router-topk "
    "q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim rotary-scaling-factor "
    "mscale mscale-all-dim heterogeneous-layers-config-path spec hybrid-attention-ratio "
    "hybrid-mlp-ratio hybrid-override-pattern mamba-state-dim mamba-head-dim mamba-num-groups "
    "mamba-num-heads is-hybrid-model num-classes img-h img-w num-channels patch-dim rope-type "
    "layernorm-epsilon layernorm-zero-centered-gamma add-bias-linear gated-linear-unit "
    "activation-func num-moe-experts add-position-embedding bert-binary-head use-legacy-models "
    "use-mcore-models transformer-impl fp32-residual-connection retro-add-retriever"
)

#: All other flags of Megatron; they have no effect on the prediction.
IGNORED = _names(
    # training loop, logging, checkpoints, data
    "train-iters train-samples log-interval exit-interval exit-duration-in-mins "
    "exit-signal-handler tensorboard-dir eval-iters eval-interval skip-train full-validation "
    "multiple-validation-sets test-mode log-params-norm log-num-zeros-in-grad log-throughput "
    "log-progress log-energy timing-log-level timing-log-option tensorboard-log-interval "
    "tensorboard-queue-size log-timers-to-tensorboard no-log-loss-scale-to-tensorboard "
    "log-loss-scale-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard "
    "log-world-size-to-tensorboard wandb-project wandb-entity wandb-exp-name wandb-save-dir "
    "logging-level log-straggler disable-straggler-on-startup straggler-ctrlr-port "
    "straggler-minmax-count run-workload-inspector-server no-one-logger enable-one-logger "
    "one-logger-project one-logger-run-name one-logger-async app-tag-run-name app-tag-run-version "
    "enable-ft-package calc-ft-timeouts config-logger-dir no-barrier-with-level-1-timing "
    "barrier-with-L1-time seed data-parallel-random-init init-method-std "
    "embedding-init-method-std init-method-xavier-uniform save save-interval "
    "persistent-save-interval save-retain-interval no-save-optim no-save-rng load no-load-optim "
    "load-main-params-from-ckpt no-load-rng finetune pretrained-checkpoint ckpt-step "
    "no-initialization perform-initialization use-checkpoint-args exit-on-missing-checkpoint "
    "use-mp-args-from-checkpoint-args use-dist-ckpt dist-ckpt-format ckpt-format "
    "ckpt-fully-parallel-save no-ckpt-fully-parallel-save async-save ckpt-fully-parallel-load "
    "ckpt-assume-constant-structure dist-ckpt-strictness auto-detect-ckpt-format "
    "use-persistent-ckpt-worker non-persistent-save-interval non-persistent-ckpt-type "
    "ckpt-convert-format ckpt-convert-save data-path split train-data-path valid-data-path "
    "test-data-path data-args-path per-split-data-args-path data-cache-path no-mmap-bin-files "
    "mock-data sample-rate mask-prob short-seq-prob num-workers reset-position-ids "
    "reset-attention-mask eod-mask-loss no-create-attention-mask-in-dataloader "
    "num-dataset-builder-threads dataloader-type vocab-file merge-file tokenizer-type "
    "tokenizer-model tokenizer-metadata tiktoken-pattern tiktoken-num-special-tokens "
    "tiktoken-special-tokens legacy-tokenizer trust-remote-code adlr-autoresume "
    "adlr-autoresume-interval retriever-seq-length iterations-to-skip rerun-mode "
    "error-injection-rate error-injection-type inprocess-restart replication replication-jump "
    "replication-factor profile profile-step-start profile-step-end profile-ranks "
    "use-pytorch-profiler record-memory-history memory-snapshot-path manual-gc manual-gc-interval "
    "no-manual-gc-eval manual-gc-eval "
    "check-weight-hash-across-dp-replicas-interval calculate-per-token-loss train-sync-interval "
    # learning rate, regularization, loss scale
    "lr lr-decay-style lr-wsd-decay-style lr-decay-iters lr-decay-samples lr-wsd-decay-samples "
    "lr-wsd-decay-iters lr-warmup-fraction lr-warmup-iters lr-warmup-samples lr-warmup-init "
    "warmup min-lr override-opt-param-scheduler use-checkpoint-opt-param-scheduler decoupled-lr "
    "decoupled-min-lr weight-decay start-weight-decay end-weight-decay weight-decay-incr-style "
    "adam-beta1 adam-beta2 adam-eps muon-momentum loss-scale initial-loss-scale min-loss-scale "
    "loss-scale-window hysteresis check-for-nan-in-loss-and-grad "
    "no-check-for-nan-in-loss-and-grad check-for-spiky-loss check-for-large-grads "
    "decrease-batch-size-if-needed "
    # kernels and communication details below the resolution of the prediction
    "no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion "
    "no-rope-fusion masked-softmax-fusion bias-gelu-fusion bias-swiglu-fusion bias-dropout-fusion "
    "apply-rope-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl no-persist-layer-norm "
    "persist-layer-norm memory-efficient-layer-norm no-gradient-accumulation-fusion "
    "gradient-accumulation-fusion use-te-activation-func apply-query-key-layer-scaling "
    "attention-softmax-in-fp32 fp16-lm-cross-entropy disable-bf16-reduced-precision-matmul "
    "tp-comm-overlap-cfg tp-comm-bootstrap-backend use-cpu-initialization "
    "empty-unused-memory-level distribute-saved-activations "
    "async-tensor-model-parallel-allreduce "
    "overlap-param-gather-with-optimizer-step no-align-grad-reduce "
    "no-align-param-gather delay-grad-reduce delay-param-gather ddp-num-buckets "
    "ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective "
    "ddp-reduce-scatter-with-fp32-accumulation distributed-backend distributed-timeout-minutes "
    "distributed-timeout-seconds-after-init local-rank lazy-mpu-init use-nccl-ub "
    "disable-symmetric-registration use-sharp sharp-enabled-group init-model-with-meta-device "
    "no-gradient-reduce-div-fusion fsdp-double-buffer suggested-communication-unit-size "
    "nccl-communicator-config-path use-tp-pp-dp-mapping high-priority-stream-groups "
    "disable-gloo-process-groups hierarchical-context-parallel-sizes "
    "cuda-graph-warmup-steps use-torch-optimizer-for-cpu-offload "
    "overlap-cpu-optimizer-d2h-h2d no-pin-cpu-grads no-pin-cpu-params te-rng-tracker "
    "no-clone-scatter-output-in-embedding clone-scatter-output-in-embedding "
    "microbatch-group-size-per-virtual-pipeline-stage "
    "no-scatter-gather-tensors-in-pipeline scatter-gather-tensors-in-pipeline "
    "use-ring-exchange-p2p account-for-embedding-in-pipeline-split "
    "account-for-loss-in-pipeline-split defer-embedding-wgrad-compute wgrad-deferral-limit "
    "pipeline-model-parallel-comm-backend fp8-recipe fp8-margin fp8-interval fp8-amax-history-len "
    "fp8-amax-compute-algo no-fp8-wgrad fp8-wgrad fp8-param-gather first-last-layers-bf16 "
    "keep-fp8-transpose-cache fp4-recipe fp4-param-gather moe-grouped-gemm "
    "moe-use-legacy-grouped-gemm moe-router-load-balancing-type moe-router-dtype "
    "moe-router-fusion moe-router-score-function moe-router-pre-softmax moe-router-num-groups "
    "moe-router-group-topk moe-router-topk-scaling-factor moe-router-enable-expert-bias "
    "moe-router-bias-update-rate moe-router-force-load-balancing moe-aux-loss-coeff "
    "moe-z-loss-coeff moe-input-jitter-eps moe-per-layer-logging moe-deepep-num-sms "
    "moe-hybridep-num-sms moe-permute-fusion moe-token-drop-policy moe-shared-expert-overlap "
    "moe-token-dropping delay-wgrad-compute enable-experimental "
    "yaml-cfg standalone-embedding-stage "
    # keys of the YAML form (examples/gpt3/gpt_config.yaml) that have no flag
    "bias-activation-fusion init-method output-layer-init-method params-dtype timers "
    "tp-comm-split-ag tp-comm-atomic-ag tp-comm-split-rs tp-comm-atomic-rs tp-comm-bulk-wgrad "
    "tp-comm-bulk-dgrad finalize-model-grads-func pipeline-dtype grad-scale-func enable-autocast "
    "autocast-dtype variable-seq-lengths num-microbatches-with-partial-activation-checkpoints "
    "batch-p2p-comm batch-p2p-sync deallocate-pipeline-outputs no-sync-func grad-sync-func "
    "param-sync-func pipeline-model-parallel-split-rank -cpu-offloading-context "
    "cpu-offloading-weights cpu-offloading-activations onnx-safe"
)
