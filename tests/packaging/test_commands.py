"""The two commands of the README are the ones that work and that CI runs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (.+)$", README, re.MULTILINE)
#: Commands of pages that show no output, which tests/docs would compare.
BARE = [
    line
    for page in ("tutorial.md", "recipes.md")
    for line in re.findall(
        r"^(simcore [^\n]+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    if "mine.yaml" not in line or "calibrate" in line  # the calibration that another command makes
]
EXAMPLES = [
    line.split("  #")[0].strip()
    for line in dict.fromkeys([*COMMANDS, *BARE])
    if line.startswith("simcore ") and not set("…[") & set(line) and "--trace" not in line
]

#: Files of measurements that the README names, and what stands for them.
LOGS = {
    "all_reduce_perf.txt": "nccl-4x8xH100.txt", "rank0.json.gz": "rank0.json.gz",
    "topo.txt": "topo-8xV100.txt",
}  # fmt: skip

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 128256,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_act": "silu", "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
#: The reader's own script.
SCRIPT = """
import sys
import torch

assert sys.argv[1:] == ["--lr", "1e-4"]
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(torch.distributed.get_rank() % 8)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.AdamW(net.parameters(), lr=float(sys.argv[2]))
for _ in range(100):
    net(torch.rand(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_ci_runs_the_readme_s_second_command() -> None:
    first, second = (c for c in COMMANDS if c.startswith("pip install"))
    assert first == "pip install . && simcore predict --model latte-l --gpus H100 --micro-batch 1"
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line in second.split(" && ")] == second.split(" && ")
    assert lines[-1] == "./check" and "set -euo pipefail" in lines
    assert os.access(ROOT / "check", os.X_OK)


def test_the_readme_is_short_and_shows_a_hit_beside_the_worst_miss() -> None:
    assert len(README.splitlines()) <= 150
    table = README[: README.index("<!-- end of table -->")]
    assert "MEASURED    step time" in table and "<!-- nearest and farthest step of:" in table


def test_constraints_pin_torch() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", p) for p in pins if p and not p.startswith("#"))


@pytest.mark.skipif(
    importlib.util.find_spec("simcore.cli.main") is None, reason="simcore.cli.main is not written"
)
@pytest.mark.parametrize(
    "command",
    # A plan looks through some ten thousand layouts; docs/plan.md's are held against their output.
    [pytest.param(c, marks=pytest.mark.long if "simcore plan" in c else ()) for c in EXAMPLES],
)
def test_examples_of_readme_tutorial_and_recipes_run(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from simcore.cli.main import run

    monkeypatch.chdir(tmp_path)
    runs = (ROOT / "validate" / "tables" / "latte.csv").read_text(encoding="utf-8")
    (tmp_path / "my_runs.csv").write_text("".join(runs.splitlines(True)[:8]), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 3}}')
    for name, kept in LOGS.items():
        shutil.copy(ROOT / "docs" / "examples" / kept, tmp_path / name)
    words = shlex.split(command)
    assert run(words[1:]) in (0, 1), capsys.readouterr().err
    if "-o" in words:
        assert (tmp_path / words[words.index("-o") + 1]).stat().st_size > 200
    if words[1] not in ("report", "capture"):  # a file alone
        assert len(capsys.readouterr().out) > 200


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
