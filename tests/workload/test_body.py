"""Names of products that adapters are asked for, where layers differ."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import SimcoreError
from simcore.workload.models import MODELS

RANK = 16


def _adapted(model: str, targets: str) -> int:
    return api.predict(model, "8xH100", lora_rank=RANK, lora_targets=targets).n_params


@pytest.mark.parametrize(
    ("model", "targets", "widths"),
    [
        # 64 mixers of 5,120 to 2,560
        ("mamba2-2.7b", "out_proj", 64 * (5120 + 2560)),
        # 24 mixers of 8,192 to 4,096 and 4 attentions of 4,096 to 4,096
        ("nemotron-h-8b", "out_proj", 24 * (8192 + 4096) + 4 * (4096 + 4096)),
        # 36 DeltaNets: 2,048 to twice 32 heads, and 4,096 to 2,048; 12 attentions' last product
        ("qwen3-next-80b-a3b", "in_proj_ba,out_proj",
         36 * (2048 + 64 + 4096 + 2048) + 12 * (4096 + 2048)),
        # without mixers it is attention's alone
        ("llama2-7b", "out_proj", 32 * (4096 + 4096)),
    ],
)  # fmt: skip
def test_a_name_that_means_several_products_is_of_all_that_there_are(
    model: str, targets: str, widths: int
) -> None:
    """A pair of matrices of rank r on n to m has r (n + m) parameters (Hu et al. 2021)."""
    assert _adapted(model, targets) == RANK * widths


@pytest.mark.parametrize("targets", ["attention.out", "q_proj", "o_proj", "foo"])
def test_a_product_that_no_layer_has_is_refused(targets: str) -> None:
    with pytest.raises(SimcoreError, match="some of in_proj, out_proj"):
        _adapted("mamba2-2.7b", targets)


def test_one_known_name_does_not_excuse_a_misspelt_one() -> None:
    with pytest.raises(SimcoreError, match="'out_projj' is no matrix product"):
        _adapted("llama2-7b", "out_proj,out_projj")


def test_a_product_of_other_models_is_left_out_as_peft_does_and_that_is_told() -> None:
    """Apertus has no gate: of the usual list PEFT adapts the products that there are."""
    asked, there_are = "gate_proj,up_proj,q_proj", "up_proj,q_proj"
    both = [
        api.predict("apertus-8b", "8xH100", lora_rank=RANK, lora_targets=t)
        for t in (asked, there_are)
    ]
    assert both[0].n_params == both[1].n_params
    assert "no layer has gate: no adapter there" in both[0].assumptions


def test_experts_that_are_one_parameter_keep_16_bits_on_a_quantised_base() -> None:
    """Mixtral: 32 layers of 8 experts, each of three matrices of 4,096 to 14,336."""
    adapted = {"lora_rank": RANK, "quantised_base": "nf4"}
    narrow, wide = (MODELS["mixtral-8x7b"].build(**adapted, wide_experts=w) for w in (False, True))
    experts = 32 * 8 * 3 * 4096 * 14336
    plain = [sum(f.resident_numel for f in m.frozen if f.as_trained) for m in (narrow, wide)]
    assert plain[1] - plain[0] == experts
    assert sum(b.numel for b in narrow.blocks) == sum(b.numel for b in wide.blocks)
