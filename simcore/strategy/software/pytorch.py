"""Programs on PyTorch's FSDP: torchtitan, torchtune, llm-foundry, fms-fsdp."""

from __future__ import annotations

from dataclasses import replace

from simcore.strategy.software.record import RUNS, SOFTWARE, Program, Software, Units, called

#: CPU time of chains of units of one and of nine small matrices, trained and frozen, over that of
#: the same modules alone; torch 2.13 on its fake backend, a kernel being 1/1.28 of nn.Linear's
#: forward. FSDP1 with use_orig_params, its device's streams and events left out: 52 and 60 a unit
#: of one, 87 and 106 of nine, 46 and 71 backward where it is frozen (45 and 43, 68 and 52, 30 and
#: 32 without use_orig_params). A layer of transformers' Llama 94 and 120.
FSDP_HOOKS = Units(unit=(50.0, 41.0), tensor=(4.1, 3.3), reduced=13.8, reduced_tensor=2.4)
#: FSDP2 (fully_shard): 49 and 60, 84 and 114, frozen 40 and 58; layers of Llama and Qwen 2, which
#: hand on more arguments, 100 to 107 and 135.
FULLY_SHARD_HOOKS = Units(unit=(60.0, 47.0), tensor=(3.5, 2.5), reduced=15.0, reduced_tensor=4.4)
#: torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the root's parameters are not resharded after
#: forward; torchtitan, llm-foundry and fms-fsdp shard each layer, then the model. What is offloaded
#: is copied to the device in fp32 and cast there (fsdp/_flat_param.py, _use_low_precision_shard;
#: FairScale's _cast_fp32_param_shards_to_fp16), gradients are cast before they go down
#: (_cast_grad_to_param_dtype). Its checkpoints are the non-reentrant ones, which since PyTorch 2.1
#: stop once all that is saved has been made anew (torch/utils/checkpoint.py,
#: set_checkpoint_early_stop). What is offloaded is updated by torch's AdamW, on a processor one
#: operation after the other (torch/optim/adamw.py, _single_tensor_adamw: mul_, lerp_, mul_,
#: addcmul_, sqrt, division, add_, addcdiv_: 8, 12, 8, 12, 8, 8, 8 and 16 bytes a parameter).
FSDP = SOFTWARE.register("fsdp")(
    Software(
        name="fsdp",
        meaning="PyTorch's FSDP around each layer and the model: embeddings and head are one unit; "
        "recompute stops early",
        weight_stubs=False, root_unit=True, wide_host=True, stops_early=True,
        host_update_bytes=80.0, units=FULLY_SHARD_HOOKS,
    )
)  # fmt: skip
called("fsdp", "fsdp2", "pytorch-fsdp", "torch-fsdp", "pytorch")
FSDP_2022 = SOFTWARE.register("fsdp-2022")(
    replace(
        FSDP,
        name="fsdp-2022",
        meaning="PyTorch's FSDP before 2.1, whose checkpoints run layers to their end",
        stops_early=False,
    )
)
#: fsdp/_fully_shard/_fsdp_param.py, to_accumulated_grad_if_needed: without a gradient sync
#: (set_requires_gradient_sync, FSDP1's no_sync) what backward made stays as it is, in reduce_dtype;
#: _runtime_utils.py, _post_backward_hook, returns before it reduces.
FSDP_NO_SYNC = SOFTWARE.register("fsdp-no-sync")(
    replace(
        FSDP,
        name="fsdp-no-sync",
        meaning="PyTorch's FSDP whose gradients are reduced after the last micro-step (no_sync), "
        "and whole on each rank until then",
        late_reduce=True,
    )
)

#: Has q, k, v, gate and up as products of their own; redistributes a module's input over tensor
#: ranks before the module runs, so that its products keep what was gathered (models/llama3/infra/
#: parallelize.py, PrepareModuleInput); its loss is compiled and reads fp32; recompute by operator;
#: expandable_segments (run_train.sh, run_llama_train.sh); its fp8 is torchao's, which keeps the
#: inputs of products in 16 bit. Gradients are reduced in fp32 (mixed_precision_reduce). In a
#: pipeline FSDP2 does not reshard after forward.
TORCHTITAN = Program(
    software=FSDP, wide_grads=True, fp8="fp8-dynamic", whole_stages=True, selective="operators",
    settings={
        "fused_qkv": False, "fused_gate_up": False, "gathered_inputs": True,
        "loss": "compiled", "upcast_loss": True,
    },
    options={"growing_segments": True},
)  # fmt: skip
#: Before pull request 1033 of early 2025 its loss is not compiled, and cut over tensor ranks unless
#: that is turned off.
TORCHTITAN_2024 = replace(TORCHTITAN, loss_of_cut="parallel").with_settings(loss="eager")

RUNS.register("torchtitan")(
    replace(
        TORCHTITAN,
        software=SOFTWARE.register("torchtitan")(
            replace(
                FSDP,
                name="torchtitan",
                meaning="torchtitan: PyTorch's FSDP2, gradients reduced in fp32, its loss compiled",
            )
        ),
    )
)
#: recipes/full_finetune_distributed.py shards each layer with FSDP2; recipes/configs: a fused
#: AdamW, gradients not clipped, dtype bf16 of weights, gradients and optimizer state.
#: modules/rms_norm.py is written in tensor operations, in fp32. modules/loss/cross_entropy_loss.py,
#: LinearCrossEntropyLoss, makes the logits in eight parts, of each of which autograd keeps the
#: log-softmax in fp32; compiled, 16-bit logits (training/_compile.py).
RUNS.register("torchtune")(
    Program(
        software=SOFTWARE.register("torchtune")(
            replace(
                FSDP,
                name="torchtune",
                meaning="torchtune: PyTorch's FSDP2, fused AdamW, norms in tensor operations, "
                "logits in eight parts (its bf16 is --precision bf16-true)",
            )
        ),
        settings={"norm": "rmsnorm_eager", "loss": "eager_freed"},
        compiled={"loss": "compiled_chunks"},
        options={"grad_clip": False, "optimizer_impl": "fused"},
    )
)

#: Recipes of 2023 set attn_impl: triton, a Triton port of the first FlashAttention, and loss_fn:
#: fused_crossentropy, flash-attn's. Composer updates its train_metrics with every micro-batch
#: (trainer.py, _train_microbatch): LanguageCrossEntropy and LanguagePerplexity
#: (models/mpt/modeling_mpt.py), each for itself.
FOUNDRY = Program(
    software=FSDP,
    settings={
        "attention": "flash_triton", "loss": "compiled", "upcast_loss": False, "logit_metrics": 2,
    },
)  # fmt: skip
#: On PyTorch 1.13 (scripts/train/benchmarking: submit_benchmarks.py's first image).
FOUNDRY_TORCH_1 = replace(FOUNDRY, software=FSDP_2022)

#: Wraps every x-th block where recompute is selective (pretraining/policies/ac_handler.py;
#: scripts/70b.sh: selective_checkpointing=1, all of them).
FMS_FSDP = Program(software=FSDP, selects_layers=True)
