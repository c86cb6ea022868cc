"""Blind errors of published training steps by regime: the table in docs/accuracy.md.

    SIMCORE_TABLES=FOLDER python docs/_ext/regimes.py

The measured tables are not part of the repository, so this is made again when validate/REPORT.md
is (``outputs.py`` does); a test holds the totals of both against each other.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
BLOCK = re.compile(
    r"(<!-- regimes, by docs/_ext/regimes\.py -->\n\n)(.*?)(<!-- end of table -->)", re.S
)

Columns = Mapping[str, str]
Regime = tuple[str, Callable[[Columns], bool]]
#: Fewer rows than this say nothing about a regime.
FEWEST = 5
NO_BREAK = "\N{NO-BREAK SPACE}"


def _between(column: str, low: int, high: int) -> Callable[[Columns], bool]:
    return lambda c: low <= int(float(c.get(column) or 1)) <= high


def _starts(column: str, *words: str) -> Callable[[Columns], bool]:
    return lambda c: c.get(column, "").lower().startswith(words)


def _has(column: str, *words: str) -> Callable[[Columns], bool]:
    return lambda c: any(w in c.get(column, "").lower() for w in words)


_SEVERAL_NODES = _between("nodes", 2, 10**6)
DATA_PARALLEL: tuple[Regime, ...] = (
    ("one GPU", _between("gpus", 1, 1)),
    ("2 to 8 GPUs, one node", lambda c: not _between("gpus", 1, 1)(c) and not _SEVERAL_NODES(c)),
    ("several nodes", _SEVERAL_NODES),
    ("16 bit by autocast", _starts("precision", "amp")),
    ("TF32", _starts("precision", "tf32")),
    ("fp32", _starts("precision", "fp32")),
    ("BERT, GPT, ViT", _starts("family", "bert", "gpt", "vit")),
    ("convolutional nets: ResNet and its kin", _starts("family", "cnn-resnet", "cnn-classic")),
    ("depthwise convolutions: MobileNet, EfficientNet", _starts("family", "cnn-mobile")),
    ("detection, one stage", _starts("family", "detection-single")),
    ("detection, R-CNN", _starts("family", "detection-rcnn")),
    ("recurrent and Transformer-XL", _starts("family", "gnmt", "txl")),
    ("WaveGlow", _starts("family", "waveglow")),
    ("V100", _starts("gpu_type", "v100")),
    ("A100", _starts("gpu_type", "a100")),
    ("H100, GH200", _starts("gpu_type", "h100", "gh200")),
    ("GeForce", _starts("gpu_type", "rtx-2", "rtx-3", "rtx-4", "gtx", "titan")),
    ("workstation cards", _starts("gpu_type", "rtx-a", "quadro")),
    ("TensorFlow", _starts("framework", "tensorflow")),
)
_EXPERTS = _between("moe_experts", 2, 10**6)
LANGUAGE: tuple[Regime, ...] = (
    ("dense, up to 8 GPUs", lambda c: not _EXPERTS(c) and _between("gpus", 1, 8)(c)),
    ("dense, 9 to 128 GPUs", lambda c: not _EXPERTS(c) and _between("gpus", 9, 128)(c)),
    ("dense, 129 to 1,024 GPUs", lambda c: not _EXPERTS(c) and _between("gpus", 129, 1024)(c)),
    ("dense, more GPUs", lambda c: not _EXPERTS(c) and _between("gpus", 1025, 10**9)(c)),
    ("mixture of experts", _EXPERTS),
    ("bf16, fp16", _starts("precision", "bf16", "fp16")),
    ("fp8", _has("precision", "fp8")),
    ("nvfp4", _starts("precision", "nvfp4")),
    ("no recompute", _starts("recompute", "none")),
    ("full recompute", _starts("recompute", "full")),
    ("recompute of selected modules", _starts("recompute", "selective")),
    ("pipeline stages", _between("pp", 2, 10**6)),
    (
        "tensor parallel, no pipeline",
        lambda c: _between("tp", 2, 10**6)(c) and _between("pp", 1, 1)(c),
    ),
    ("data parallel alone", lambda c: all(_between(d, 1, 1)(c) for d in ("tp", "pp", "cp", "ep"))),
    ("A100", _starts("gpu_type", "a100", "a800")),
    ("H100, H200", _starts("gpu_type", "h100", "h200", "h800")),
    ("B200, GB200, B300, GB300", _starts("gpu_type", "b200", "gb200", "b300", "gb300")),
    ("AMD", _starts("gpu_type", "mi")),
)
FILES: tuple[tuple[str, str, tuple[Regime, ...]], ...] = (
    ("ddp.csv", "data-parallel runs", DATA_PARALLEL),
    ("llm.csv", "language models", LANGUAGE),
)


def rows_of(
    file: str, title: str, regimes: tuple[Regime, ...], scored: list[tuple[Columns, object]]
) -> Iterator[str]:
    """Lines of the table: all rows, then each regime with enough of them."""
    from simcore.validate.metrics import score

    for name, belongs in ((f"**{title}, all**", lambda c: True), *regimes):
        found = score([s for columns, s in scored if belongs(columns)])  # type: ignore[misc]
        if found.n < FEWEST:
            continue
        assert found.mape_frac is not None
        assert found.median_bias_frac is not None
        assert found.coverage80_frac is not None
        figures = (
            f"{found.n:,}", f"{100 * found.mape_frac:.1f}{NO_BREAK}%",
            f"{100 * found.median_bias_frac:+.1f}{NO_BREAK}%",
            f"{100 * found.coverage80_frac:.0f}{NO_BREAK}%",
        )  # fmt: skip
        yield f"| {name} | {' | '.join(figures)} |"


def table(folder: Path) -> str:
    """The table of all files in ``folder``."""
    from simcore.validate.judge import judge
    from simcore.validate.table import read_table

    out = [
        "| steps of | rows | mean error | bias | in the 80 % interval |",
        "|---|---|---|---|---|",
    ]
    for file, title, regimes in FILES:
        scored = [
            (judged.case.columns, s)
            for judged in judge([read_table(folder / file)]).judged
            for s in judged.scored
            if s.quantity == "step_time" and not s.flag
        ]
        out += rows_of(file, title, regimes, scored)
    return "\n".join(out) + "\n"


def totals(page: str) -> list[tuple[str, ...]]:
    """(rows, mean error, bias) of the lines about all steps of a file."""
    plain = page.replace(NO_BREAK, " ").replace(",", "")
    return re.findall(r"^\| \*\*.*?all\*\* \| (\d+) \| (\S+ %) \| (\S+ %)", plain, re.M)


def report_totals(report: str) -> list[tuple[str, ...]]:
    """The same of a report's sections on published steps, with every word of their sources."""
    sections = re.split(r"^## ", report, flags=re.MULTILINE)
    report = "".join(s for s in sections if s.startswith("Published"))
    said = "step time, with every word of its source"
    line = rf"^\| {said} \| (\d+) \| (\S+ %) \| \S+ % \| (\S+ %) \|"
    return re.findall(line, report, re.MULTILINE)


def stale() -> bool:
    """Whether the report has been made again since the table was."""
    report = (ROOT / "validate" / "REPORT.md").read_text(encoding="utf-8")
    return totals(PAGE.read_text(encoding="utf-8")) != report_totals(report)


def main() -> int:
    """Write the table into the page; the exit code."""
    if not (tables := os.environ.get("SIMCORE_TABLES")):
        sys.stderr.write("SIMCORE_TABLES names the folder of measured tables; it is not set\n")
        return 2
    new = table(Path(tables) / "steps")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda m: f"{m[1]}{new}\n{m[3]}", page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
