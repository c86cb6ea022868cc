"""torch.compile: what it fuses of a language model, and where that is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.workload.graph import Workload

SAMPLES = Path(__file__).parents[1] / "strategy" / "dialects" / "samples"


def kernels(workload: Workload) -> tuple[float, float]:
    """Kernels launched and bytes kept a sample in 16 bit, over all blocks."""
    ops = [op for block in workload.instances() for op in block.ops]
    launched = sum(k.launches for op in ops for k in (*op.fwd, *op.bwd))
    return launched, sum(op.saved.low * 2 + op.saved.high * 2 + op.saved.raw_bytes for op in ops)


def of(model: str, **words: object) -> Workload:
    return make_request(model, "1xA100", micro_batch=1, **words).workload  # type: ignore[arg-type]


@pytest.mark.parametrize("software", [None, "transformers", "torchtune"])
def test_fewer_kernels_and_less_kept(software: str | None) -> None:
    eager, compiled = (
        kernels(of("llama3-8b", seq_len=2048, software=software, compile=c)) for c in (False, True)
    )
    assert compiled[0] < 0.8 * eager[0]
    assert compiled[1] < 0.8 * eager[1]


def test_products_and_attention_stay() -> None:
    def work(compiled: bool) -> float:
        ops = [op for b in of("llama3-8b", compile=compiled).instances() for op in b.ops]
        return sum(k.flop for op in ops for k in (*op.fwd, *op.bwd))

    assert work(True) == pytest.approx(work(False))


def test_a_library_says_what_its_compiled_loss_is() -> None:
    whole = of("llama3-8b", seq_len=4096, compile="on")
    parts = of("llama3-8b", seq_len=4096, software="torchtune", compile="on")
    liger = of(
        "llama3-8b", seq_len=4096, software="liger", compile="on", settings={"torch": "2.14"}
    )  # without a mask
    kept = [kernels(w)[1] for w in (whole, parts, liger)]
    logits = 2.0 * 4096 * 128256
    assert kept[0] == pytest.approx(kept[1], rel=0.02)  # 16-bit logits whole in both
    assert kept[0] - kept[2] == pytest.approx(logits, rel=0.1)  # Liger has none


def test_other_models_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="language models only"):
        make_request("resnet-50", "1xA100", compile=True)
    with pytest.raises(InvalidConfig, match="unknown compile 'max'"):
        make_request("gpt2", "1xA100", compile="max")


def test_a_launch_file_says_so() -> None:
    file = str(SAMPLES / "torchtitan_llama3.toml")
    told = make_request("llama3-8b", "8xH100", launch=file)
    assert told.compiled
    assert not make_request("llama3-8b", "8xH100", launch=file, compile="off").compiled
    line = "torchrun --nproc-per-node=8 train.py --torch_compile True"
    assert make_request("gpt2", "8xH100", launch=line).compiled
    # nothing is known of what it fuses there: the line is still read
    assert not make_request("bert-base", "8xH100", launch=line).compiled
