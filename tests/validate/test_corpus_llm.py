"""Rules of llm.csv: releases of programs, told by the row; what sources state of their rows."""

import pytest
from corpus_rows import ROW, case_of, hidden_in, read, settings_of

from simcore.strategy.programs import program_named
from simcore.validate.case import Skipped
from simcore.validate.formats.row_rules import Rule, corpora_folder, read_by, rules_of

SOURCES = corpora_folder() / "llm" / "1-sources.yaml"


@pytest.mark.parametrize(
    ("changes", "program"),
    [
        ({"source": "pytorch-torchtitan", "source_ref": "a_202412_b"}, "torchtitan@2024"),
        ({"source": "pytorch-torchtitan", "source_ref": "a_202505_b"}, "torchtitan@2025-06"),
        ({"source": "pytorch-torchtitan"}, "torchtitan@2025-06"),
        (
            {"source": "mosaicml-llm-foundry", "notes": "mixed_precision=PURE"},
            "llm-foundry@torch-1",
        ),
        ({"source": "mosaicml-llm-foundry", "notes": "mixed_precision=DEFAULT"}, "llm-foundry"),
        ({"source": "nvidia-megatron-bridge"}, "megatron-bridge@benchmarks-bf16"),
        (
            {"source": "nvidia-megatron-bridge", "precision": "mxfp8"},
            "megatron-bridge@benchmarks",
        ),
        ({"source": "nvidia-megatron-bridge", "sharding": "fsdp"}, "megatron-bridge@benchmarks"),
        ({"source": "megascale", "variant": "MegaScale"}, "megascale"),
        ({"source": "huggingface-nanotron"}, "nanotron"),
        ({"source": "a lab of its own"}, None),
    ],
)
def test_a_row_is_of_a_release(changes: dict[str, str], program: str | None) -> None:
    cells = {"nodes": "1", "micro_batch": "", "reported": "", **ROW, **changes}
    assert read_by(rules_of(SOURCES), cells).texts.get("program") == program


def _all_rules() -> list[Rule]:
    folders = [p.parent for p in corpora_folder().glob("*/format.yaml")]
    return [r for f in folders for file in sorted(f.glob("*.yaml")) for r in rules_of(file)]


def test_every_program_of_a_corpus_is_known() -> None:
    named = {r.gives["program"] for r in _all_rules() if "program" in r.gives}
    assert len(named) > 20
    assert all(program_named(name) for name in named if "{" not in name)
    for rule in (r for r in _all_rules() if "{" in r.gives.get("program", "")):
        releases = rule.when["torch_minor"]  # those that the name is written for
        assert all(program_named(rule.gives["program"].format(torch_minor=r)) for r in releases)


def test_what_a_source_says_is_of_its_jobs_alone() -> None:
    """Two sources on one release: what the one states is not the other's."""
    assert settings_of(source="zero-bubble", vocab="50257")["vocab"] == 32_000
    assert settings_of(source="korthikanti-recompute", vocab="50257")["vocab"] == 50_257


def test_a_source_says_which_of_its_rows_no_others_compare_with() -> None:
    row = {"source": "bigscience-bloom", "variant": "pre_numa_fix"}
    assert case_of(**row).columns["cluster_state"]
    assert not case_of(**row | {"variant": "post_numa_fix"}).columns["cluster_state"]
    assert not case_of(**row | {"source": "vtrain"}).columns["cluster_state"]


def test_a_source_that_no_rule_names_is_a_job_of_no_named_program() -> None:
    case = case_of(source="a lab of its own", overlaps="TP_COMM_OVERLAP")
    assert "software" not in case.options and "issuer" not in case.options
    assert "tensor" in str(case.options["overlap"])  # the row says so itself


@pytest.mark.parametrize(
    ("hidden", "layers", "pp", "samples", "chunks", "wrapped"),
    [("2304", "24", "1", 16, 1, True), ("6144", "40", "1", 8, 1, True),
     ("8192", "48", "2", 4, 1, False), ("12288", "80", "8", 2, 2, False),
     ("16384", "96", "16", 1, 2, False), ("25600", "128", "64", 1, 1, False)],
)  # fmt: skip
def test_table_1_of_sc21_ran_as_its_script_says(
    hidden: str, layers: str, pp: str, samples: int, chunks: int, wrapped: bool
) -> None:
    row = {"source": "megatron-sc21-a100", "hidden": hidden, "layers": layers, "pp": pp,
           "gpus": "64"}  # fmt: skip
    case = case_of(**row)
    assert (case.options["micro_batch"], case.options["vpp"]) == (samples, chunks)
    assert ("grads" in hidden_in(**row)) is wrapped
    assert case_of(**row, micro_batch="3").options["micro_batch"] == 3
    before = row | {"source": "megatron-jan21-a100", "vpp": "1.0"}
    case = case_of(**before)
    assert (case.options["micro_batch"], case.options["vpp"]) == (samples, 1)
    assert "grads" not in hidden_in(**before)


def test_torchtitans_looped_schedules_have_two_stages_a_rank() -> None:
    row = {"source": "pytorch-torchtitan", "pp": "8", "dp": "4", "variant": "PP8 Interleaved 1F1B"}
    assert case_of(**row).options["vpp"] == 2
    assert case_of(**row | {"variant": "PP8 1F1B", "vpp": "1.0"}).options["vpp"] == 1


def test_a_pipeline_of_torchtitan_has_as_many_micro_batches_as_stages() -> None:
    row = {"source": "pytorch-torchtitan", "pp": "8", "dp": "4", "sharding": "fsdp"}
    words = case_of(**row).options
    assert (words["strategy"], words["micro_batch"]) == ("zero1", 64 // (4 * 8))
    assert case_of(**row, micro_batch="1").options["micro_batch"] == 1
    assert case_of(**row | {"pp": "1"}).options["strategy"] == "zero3"


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({"gpus": "4"}, "1x4xH100-SXM5-80GB"),
        ({"gpus": "32"}, "4x8xH100-SXM5-80GB"),
        ({"gpus": "128", "gpu_type": "GB200-NVL72-192GB"}, "2x64xGB200-NVL72-192GB"),
        ({"gpus": "144", "gpu_type": "GB200-NVL72-192GB"}, "2x72xGB200-NVL72-192GB"),
    ],
)
def test_a_rack_is_divided_evenly(cells: dict[str, str], gpus: str) -> None:
    assert case_of(**cells).gpus == gpus


def test_gpus_that_fill_no_nodes_are_no_job() -> None:
    found = read(gpus="12")
    assert isinstance(found, Skipped)
    assert found.reason == "12 GPUs are no whole number of nodes of 8"


@pytest.mark.parametrize("column", ["layers", "hidden", "heads", "seq_len", "gpus", "global_batch"])
def test_a_row_that_leaves_out_what_makes_the_job_is_none(column: str) -> None:
    found = read(**{column: ""})
    assert isinstance(found, Skipped) and found.reason == f"{column} is blank"


def test_a_cell_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(ValueError, match="layers: 'many' is not a number"):
        read(layers="many")
    with pytest.raises(ValueError, match=r"tp: '2\.5' must be a whole number"):
        read(tp="2.5")
    with pytest.raises(ValueError, match="step_time_s: 'nan'"):
        read(step_time_s="nan")
