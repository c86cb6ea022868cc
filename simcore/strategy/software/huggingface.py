"""Hugging Face's Trainer and the models that it runs, by release."""

from __future__ import annotations

from dataclasses import replace

from simcore.strategy.software.deepspeed import DEEPSPEED
from simcore.strategy.software.pytorch import FSDP_HOOKS
from simcore.strategy.software.record import (
    RUNS,
    SOFTWARE,
    Driver,
    Modules,
    Program,
    Software,
    called,
)

#: CPU time of transformers 5.23 and PEFT 0.21 on torch 2.13, one core, tiny tensors, a kernel being
#: 1/1.28 of nn.Linear's forward. Modules of Llama and GPT-2 take 17 % longer forward and 4 %
#: backward than the same operators by hand; PEFT's lora.Linear (tuners/lora/layer.py) 2.5 to 3.4
#: and 0 to 0.7 kernels' time more than the same two products, scale and sum.
MODULES = Modules(share=(0.17, 0.04), adapter=(3.0, 0.4))
#: trainer.py asks of each loss whether it is finite (logging_nan_inf_filter, True by default), and
#: so waits for the device. Until the next forward it walks through all parameters to count their
#: FLOP (floating_point_ops) and through all modules to put them in training mode (model.train()):
#: 8.0 kernels' time a layer of Llama, 9.3 of Qwen 2, 52 with PEFT's adapters on the seven products
#: of either; all else, the batch's collation among it, takes 55 to 70 a micro-step.
DRIVER = Driver(micro_step=60.0, layer=8.5, adapter=6.2)
#: trainer.py, _inner_training_loop: accelerator.accumulate, since 4.46 accelerator.no_sync, in all
#: micro-steps but the last unless sync_each_batch is set. modeling_utils.py,
#: gradient_checkpointing_enable: use_reentrant is True by default until 5, and such checkpoints run
#: layers to their end. masking_utils.py, _ignore_causal_mask_sdpa: the mask of a shorter window is
#: handed to sdpa, whose flash kernel takes none (attn_implementation="sdpa" is the default).
TRANSFORMERS = SOFTWARE.register("transformers")(
    Software(
        name="transformers",
        meaning="Hugging Face's Trainer around transformers' models: RMS norms in tensor "
        "operations, gradients clipped by their norm, FSDP's reduced after the last micro-step, "
        "fused AdamW",
        plain_modules=True, weight_stubs=False, root_unit=True, wide_host=True, late_reduce=True,
        window_masks=True, units=replace(FSDP_HOOKS, adapters=True), modules=MODULES, driver=DRIVER,
    )
)  # fmt: skip
TRANSFORMERS_2023 = SOFTWARE.register("transformers-2023")(
    replace(
        TRANSFORMERS,
        name="transformers-2023",
        meaning="Hugging Face's Trainer from 4.30 on, before torch 2.8: torch's AdamW",
    )
)
TRANSFORMERS_2022 = SOFTWARE.register("transformers-2022")(
    replace(
        TRANSFORMERS,
        name="transformers-2022",
        meaning="Hugging Face's Trainer before 4.30, PyTorch before 2.0: its own AdamW, tensor by "
        "tensor; gradients stay between steps, libraries load all their kernels",
        keeps_grads=True,
    )
)
#: Gradients are clipped by their norm unless told otherwise, AdamW is torch's fused one on torch
#: 2.8 and later, once torch's default, and before 4.30 its own, which updates tensor by tensor
#: (training_args.py: max_grad_norm 1.0, default_optim; optimization.py, AdamW.step).
#: models/llama/modeling_llama.py, LlamaRMSNorm, and its kin; trainer.py, compute_loss: the model's
#: outputs are gone when it returns the loss.
for _library, _impl in (
    (TRANSFORMERS, "fused"), (TRANSFORMERS_2023, "foreach"), (TRANSFORMERS_2022, "for-loop"),
):  # fmt: skip
    RUNS.register(_library.name)(
        Program(
            software=_library,
            settings={"norm": "rmsnorm_eager", "loss": "eager_freed"},
            options={"grad_clip": True, "optimizer_impl": _impl}
            | ({"eager_kernels": True} if _library.keeps_grads else {}),
        )
    )

#: integrations/deepspeed.py hands the model to DeepSpeed's engine; the loop, the modules and what a
#: window's mask does are the Trainer's.
DEEPSPEED_TRAINER = SOFTWARE.register("transformers-deepspeed")(
    replace(
        DEEPSPEED,
        name="transformers-deepspeed",
        meaning="Hugging Face's Trainer with --deepspeed: DeepSpeed's ZeRO around transformers' "
        "models",
        window_masks=True, modules=MODULES, driver=DRIVER,
    )
)  # fmt: skip
RUNS.register(DEEPSPEED_TRAINER.name)(
    Program(
        software=DEEPSPEED_TRAINER,
        settings={"norm": "rmsnorm_eager", "loss": "eager_freed"},
        options={"grad_clip": True},
    )
)

#: liger_kernel/transformers/monkey_patch.py, apply_liger_kernel_to_llama and its kin: rotary
#: positions, RMS norms and the gated activation are a kernel each, head and loss one that makes a
#: part of the logits at a time (fused_linear_cross_entropy).
LIGER = SOFTWARE.register("transformers-liger")(
    replace(
        TRANSFORMERS,
        name="transformers-liger",
        meaning="Hugging Face's Trainer with Liger's kernels (use_liger_kernel): norms, rotary "
        "positions and gated activations one kernel each, no logits in memory",
    )
)
#: unsloth/kernels: rms_layernorm.py, rope_embedding.py, swiglu.py; unsloth_zoo/loss_utils.py,
#: unsloth_fused_ce_loss (2025; before, kernels/cross_entropy_loss.py on whole logits). That its
#: LoRA products share autograd functions and its checkpoints lie on the host is left to options.
UNSLOTH = SOFTWARE.register("unsloth")(
    replace(
        LIGER,
        name="unsloth",
        meaning="Hugging Face's Trainer with Unsloth's kernels: norms, rotary positions and gated "
        "activations one kernel each, no logits in memory",
    )
)
for _library in (LIGER, UNSLOTH):
    RUNS.register(_library.name)(
        Program(
            software=_library,
            settings={"norm": "rmsnorm", "fused_pointwise": True, "loss": "chunked"},
            compiled={"loss": "chunked"},
            options={"grad_clip": True, "optimizer_impl": "fused"},
        )
    )

#: Their trainers are subclasses of the Trainer: trl/trainer/sft_trainer.py, SFTTrainer; axolotl/
#: core/trainers/base.py, AxolotlTrainer; llamafactory/train/sft/trainer.py, CustomSeq2SeqTrainer;
#: swift/trainers, Seq2SeqTrainer.
called(
    "transformers", "trainer", "hf", "huggingface", "hugging-face", "hf-trainer", "trl", "axolotl",
    "llama-factory", "llamafactory", "swift", "ms-swift",
)  # fmt: skip
called("transformers-2023", "trainer-2023")
called("transformers-2022", "trainer-2022")
called("transformers-deepspeed", "trainer-deepspeed", "trl-deepspeed", "llama-factory-deepspeed")
called("transformers-liger", "liger", "liger-kernel")
