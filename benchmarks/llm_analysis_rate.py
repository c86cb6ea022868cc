"""Configurations per second of llm-analysis (PyPI) on one core: ``PYTHON llm_analysis_rate.py``.

The versions that llm-analysis pins (transformers 4.31) conflict with those of simcore's tests, so
PYTHON must be the interpreter of a separate environment; this script does not import simcore. It
calls ``training`` once per configuration, with logging off: Llama-2 70B on H100 with parallel
degrees, ZeRO stages, recompute and batches like those of the ``dense`` space. A configuration that
does not fit counts as evaluated. All configurations of a layout share one object.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from itertools import product

SECONDS = 5.0


def main() -> None:
    """Print the figures as JSON."""
    logging.disable(logging.CRITICAL)
    from importlib.metadata import version

    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import (
        ParallelismConfig,
        get_gpu_config_by_name,
        get_model_config_by_name,
    )

    model = get_model_config_by_name("upstage_Llama-2-70b-instruct-v2")
    gpu = get_gpu_config_by_name("h100-sxm-80gb")
    stages = (DSZeRO.NONE, DSZeRO.STAGE_1, DSZeRO.STAGE_2, DSZeRO.STAGE_3)
    recompute = (ActivationRecomputation.NONE, ActivationRecomputation.FULL)
    fit = answered = 0
    started = time.process_time()
    while time.process_time() - started < SECONDS:
        for tp, pp, dp in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (8, 16, 32)):
            layout = ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=dp)
            analysis = LLMAnalysis(model, gpu, parallelism_config=layout, flops_efficiency=0.5)
            for stage, again, batch, steps in product(stages, recompute, (1, 2, 4, 8), (1, 8)):
                try:
                    analysis.training(
                        batch_size_per_gpu=batch, gradient_accumulation_steps=steps,
                        seq_len=4096, ds_zero=stage, activation_recomputation=again,
                    )  # fmt: skip
                    fit += 1
                except AssertionError as err:  # so it says that memory is too small
                    if "max_batch_size_per_gpu" not in str(err):
                        raise
                answered += 1
            if time.process_time() - started >= SECONDS:
                break
    seconds = time.process_time() - started
    found = {
        "version": version("llm-analysis"),
        "strategies_per_s": answered / seconds,
        "strategies": answered,
        "fit": fit,
        "cpu_s": seconds,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
