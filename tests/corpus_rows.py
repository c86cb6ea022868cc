"""Rows of a corpus as cases, made of a few cells."""

from simcore.validate.case import Case, Skipped
from simcore.validate.formats.described import described_formats

#: A row of llm.csv that nothing but its columns describes.
ROW = {
    "source": "", "source_ref": "", "model": "llama3-8b", "arch": "llama", "params_b": "8.03",
    "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "vocab": "128256", "seq_len": "8192", "global_batch": "64", "gpus": "32",
    "gpu_type": "H100-SXM5-80GB", "gpus_per_node": "8", "inter_node_gbps_per_gpu": "400",
    "tp": "1", "pp": "1", "vpp": "", "dp": "32", "cp": "1", "ep": "1", "sharding": "zero1",
    "recompute": "none", "precision": "bf16", "step_time_s": "3.0", "peak_mem_gib": "",
    "quality": "A", "task": "pretrain", "variant": "", "notes": "",
}  # fmt: skip


def read(**cells: str) -> Case | Skipped:
    """A row of llm.csv with these cells."""
    (llm,) = (f for f in described_formats() if f.name == "llm")
    return llm.read("a", ROW | cells)


def case_of(**cells: str) -> Case:
    """A row of llm.csv with these cells, which is a job."""
    found = read(**cells)
    assert isinstance(found, Case), found
    return found


def settings_of(**cells: str) -> dict[str, object]:
    """What such a row's command sets of its model."""
    return dict(case_of(**cells).options["settings"])


def hidden_in(**cells: str) -> set[str]:
    """The communication that hides under compute in such a row."""
    return set(str(case_of(**cells).options["overlap"]).split(",")) - {"none"}
