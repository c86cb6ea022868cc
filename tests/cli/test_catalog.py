"""``list`` and ``show``: every record can be listed and shown, each figure with its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from simcore.cli.catalog import LISTS
from simcore.report.catalog import DATABASES, figure_text, render_record, unit_of
from simcore.workload.archs import FILES, KINDS


@pytest.mark.parametrize("kind", LISTS)
def test_lists_in_text_and_json_agree(kind: str, simcore: Callable) -> None:
    text, data = simcore("list", kind), json.loads(simcore("list", kind, "--json").out)
    assert text.code == 0
    lines = text.out.partition("\n\n")[0].splitlines()  # units follow after an empty line
    assert max(map(len, lines)) <= 84  # 80, but for names that are longer than their column
    named = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert named == [entry["name"] for entry in data]


@pytest.mark.parametrize("word", ["gpu", "gpus", "strategy", "Models", "precision"])
def test_singular_and_plural(word: str, simcore: Callable) -> None:
    assert simcore("list", word).code == 0


def test_machines_are_listed_with_the_network_that_they_have(simcore: Callable) -> None:
    """A p5.48xlarge has the ports of its node, a p3.2xlarge those that its own record states."""
    lines = simcore("list", "instances").out.splitlines()
    networks = {line.split()[0]: line.split()[-1] for line in lines[1:]}
    assert networks["p5.48xlarge"] == "8xefa-400"
    assert networks["p3.2xlarge"] == "eth-2.5"


def test_a_list_may_be_of_what_has_a_word(simcore: Callable) -> None:
    named = [line.split()[0] for line in simcore("list", "models", "Llama-3").out.splitlines()[1:]]
    llamas = ["llama3-8b", "llama3-70b", "llama3.1-405b", "llama3.2-1b", "llama3.2-3b"]
    assert named == [*llamas, "open-llama-3b"]
    data = json.loads(simcore("list", "models", "codellama", "--json").out)  # one by an alias
    assert [d["name"] for d in data] == ["codellama-7b", "codellama-13b", "llama2-34b"]
    assert {d["kind"] for d in data} == {"language"}
    refused = simcore("list", "models", "no-such-thing")
    assert refused.code == 2 and "unknown model 'no-such-thing'" in refused.err


def test_software_is_listed_with_what_others_call_it(simcore: Callable) -> None:
    data = json.loads(simcore("list", "software", "hf-trainer", "--json").out)
    assert [d["name"] for d in data] == ["transformers"]
    assert "megatron-core" in simcore("list", "programs", "mcore").out
    (one,) = json.loads(simcore("list", "software", "fsdp-no-sync", "--json").out)
    assert one["name"] == "fsdp" and "no-sync" in one["releases"]
    refused = simcore("predict", "--model", "gpt2", "--gpus", "1xA100", "--software", "nonesuch")
    assert refused.code == 2 and "simcore list software" in refused.err


def test_a_program_is_shown_with_the_sources_of_its_facts(simcore: Callable) -> None:
    shown = simcore("show", "program", "fsdp-2022").out
    assert shown.startswith("fsdp@2022: ")
    assert "recompute.stops_early = no" in shown and "set_checkpoint_early_stop" in shown
    data = json.loads(simcore("show", "software", "megatron-whole-sends", "--json").out)
    facts = {f["fact"]: f for f in data["facts"]}
    assert facts["pipeline.sends_whole_output"]["value"] is True
    assert not any(name.startswith("runs.") for name in facts)  # it says nothing of that
    assert all(f["source"] for f in data["facts"])
    refused = simcore("show", "program", "fsdp@no-sink")
    assert refused.code == 2 and "unknown release of fsdp" in refused.err
    assert "did you mean 'no-sync'" in refused.err


def test_models_stand_by_kind_then_by_size(simcore: Callable) -> None:
    data = json.loads(simcore("list", "models", "--json").out)
    kinds = [d["kind"] for d in data]
    assert list(dict.fromkeys(kinds)) == [k for k in KINDS if k in kinds]
    assert len([1 for a, b in pairwise(kinds) if a != b]) == len(set(kinds)) - 1  # together
    names = [d["name"] for d in data]
    assert names.index("opt-350m") < names.index("opt-1.3b") < names.index("opt-13b")


def test_every_architecture_is_of_one_kind() -> None:
    named = [arch for archs in KINDS.values() for arch in archs]
    assert sorted(named) == sorted(FILES)


def test_show_names_the_source_of_each_figure(simcore: Callable) -> None:
    shown = simcore("show", "gpus", "RTX-6000-Ada").out  # an alias
    assert shown.startswith("A6000ada: ")
    assert "960 GB/s  [datasheet]" in shown and "364.2 TFLOP/s  [whitepaper]" in shown
    data = json.loads(simcore("show", "gpu", "A6000ada", "--json").out)
    assert data["figures"]["memory_bw_bytes_per_s"]["value"] == 960e9
    assert data["figures"]["tdp_w"]["value"] == 300
    assert all(f["source"] for f in data["figures"].values())


def test_without_a_name_show_lists_what_there_is(simcore: Callable) -> None:
    shown = simcore("show", "calibration").out
    assert shown == simcore("list", "calibrations").out
    by_name = {line.split()[0]: line for line in shown.splitlines()[1:]}
    # the profile that every job takes, and the devices that a fitted one is for
    assert "any GPU; used by a" in by_name["blind"]
    assert "RTX4090, A6000ada," in by_name["latte-ddp"]


@pytest.mark.parametrize("kind", DATABASES)
def test_every_record_can_be_shown(kind: str) -> None:
    for record in DATABASES[kind].all():
        text = render_record(record)
        assert record.full_name in " ".join(text.split())
        long = [line.strip() for line in text.splitlines() if len(line) > 80]
        assert all("://" in line and " " not in line for line in long), long
        for key, figure in record.figures().items():
            assert figure_text(key, figure.value) in text
            assert f"[{figure.source}]" in text


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("memory_bw", "bytes_per_s"), ("cpu.dram_bw_per_socket", "bytes_per_s"),
        ("nvme.read_bw", "bytes_per_s"), ("bw", "bytes_per_s"), ("l2_size", "bytes"),
        ("memory_visible", "bytes"), ("latency", "s"), ("dataset.sample_load", "s"),
        ("dataset.sample_traffic", "bytes"),
        ("peak_flop_per_s.int8", "flop_per_s"), ("tdp", "w"), ("boost_clock", "hertz"),
        ("base_clock", "hertz"), ("sm_count", ""), ("payload_frac", ""), ("frozen[0].params", ""),
    ],
)  # fmt: skip
def test_units(key: str, unit: str) -> None:
    assert unit_of(key) == unit


def test_a_former_name_shows_the_model_with_its_words(simcore: Callable) -> None:
    shown = simcore("show", "model", "efficientnet-b0-pillow").out
    assert shown.startswith("efficientnet-b0: EfficientNet-B0, augmented by Pillow")
    assert "3.7 ms" in shown and "5,288,548" in shown
    assert "pillow" not in simcore("list", "models").out


def test_the_settings_of_architectures_are_listed(simcore: Callable) -> None:
    listed = {a["name"]: a for a in json.loads(simcore("list", "architectures", "--json").out)}
    vit = listed["arch:vit"]
    assert not {*vit["needed_settings"]} & {*vit["other_settings"]}
    words = [f"--set={key}={value}" for key, value in
             {"image": 224, "patch": 16, "hidden": 384, "layers": 12, "heads": 6}.items()
             if key in vit["needed_settings"]]  # fmt: skip
    assert len(words) == len(vit["needed_settings"])
    assert simcore("predict", "--model", "arch:vit", "--gpus", "1xA100", *words).code == 0
    missing = simcore("predict", "--model", "arch:vit", "--gpus", "1xA100", *words[1:])
    assert missing.code == 2 and "needs its dimensions" in missing.err
    assert "arch:transformer" in simcore("list", "archs", "transformer").out
