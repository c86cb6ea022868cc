"""Hugging Face's Trainer and the models that it runs."""

from __future__ import annotations

from dataclasses import replace

from simcore.strategy.software.record import RUNS, SOFTWARE, Program, Software

#: Clips gradients by their norm unless told otherwise (transformers, training_args.py:
#: max_grad_norm 1.0).
TRAINER = SOFTWARE.register("trainer")(
    Software(
        name="trainer",
        meaning="Hugging Face's Trainer: gradients clipped by their norm, fused AdamW",
        plain_modules=True,
    )
)
TRAINER_2023 = SOFTWARE.register("trainer-2023")(
    replace(
        TRAINER,
        name="trainer-2023",
        meaning="Hugging Face's Trainer from 4.30 on, before torch 2.8: gradients clipped by their "
        "norm, torch's AdamW",
    )
)
TRAINER_2022 = SOFTWARE.register("trainer-2022")(
    replace(
        TRAINER,
        name="trainer-2022",
        meaning="Hugging Face's Trainer before 4.30: gradients clipped by their norm, its own "
        "AdamW, tensor by tensor",
    )
)
#: AdamW is torch's fused one on torch 2.8 and later, once torch's default, and before transformers
#: 4.30 its own, which updates tensor by tensor (default_optim: adamw_torch_fused, adamw_torch,
#: adamw_hf; optimization.py, AdamW.step).
for _library, _impl in ((TRAINER, "fused"), (TRAINER_2023, "foreach"), (TRAINER_2022, "for-loop")):
    RUNS.register(_library.name)(
        Program(software=_library, options={"grad_clip": True, "optimizer_impl": _impl})
    )
