"""Scripts as they are: what they ask is answered, nothing is written, and the job is theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from simcore.cli.main import run

SCRIPT = """\
import argparse, os, tempfile
import torch
from torch import nn
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
assert torch.cuda.is_available() and torch.cuda.device_count() == 8
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
assert (dist.get_rank(), dist.get_world_size()) == (0, int(os.environ["WORLD_SIZE"]))
torch.cuda.set_device(rank)

os.makedirs("out/logs", exist_ok=True)
log = open("out/logs/loss.csv", "w")
log.write("step,loss")
log.close()
assert open("out/logs/loss.csv").read() == "step,loss" and os.listdir("out") == ["logs"]
open("given.txt", "a").write(" and more")
assert open("given.txt").read() == "given and more"
os.rename("out/logs/loss.csv", "out/loss.csv")
tempfile.NamedTemporaryFile().write(b"x")

class Data(Dataset):
    def __len__(self):
        return 10000
    def __getitem__(self, i):
        return torch.randn(args.width), i % 10

n = 4 * args.width
model = nn.Sequential(nn.Linear(args.width, n), nn.ReLU(), nn.Linear(n, 10))
model = nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
data = Data()
loader = DataLoader(data, 4, sampler=DistributedSampler(data), num_workers=2, pin_memory=True)
for epoch in range(100):
    for x, y in loader:
        assert y.max().item() < 10
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert torch.isfinite(loss).all() and not loss.isnan()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
        torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()
"""

SPAWNS = (
    "import torch\n"
    "def train(rank, width):\n"
    "    torch.distributed.init_process_group('nccl', rank=rank, world_size=8)\n"
    "    model = torch.nn.Linear(width, width, device=rank)\n"
    "    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])\n"
    "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "    for _ in range(9):\n"
    "        model(torch.randn(2, width, device=rank)).sum().backward()\n"
    "        optimizer.step()\n"
    "if __name__ == '__main__':\n"
    "    torch.multiprocessing.spawn(train, (32,), nprocs=torch.cuda.device_count())\n"
)


def test_a_script_of_torch_becomes_its_job_and_writes_nothing(capture: Any, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given", encoding="utf-8")
    job = capture(SCRIPT, "--width", "16", "--debug", gpus="8x8xH100")
    n = 16 * 64 + 64 + 64 * 10 + 10
    assert job.bytes["parameters"] == job.bytes["gradients"] == 4 * n
    assert job.bytes["optimizer_state"] == 8 * n
    assert [(c.kind, c.group_size, c.n_bytes) for c in job.collectives] == [
        ("all-reduce", 64, 4 * n)
    ]
    wanted = {"strategy": "ddp", "micro_batch": 4, "grad_clip": True, "num_workers": 2}
    assert {k: job.options[k] for k in wanted} == wanted
    assert (tmp_path / "given.txt").read_text(encoding="utf-8") == "given"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["given.txt", "train.py"]


SAVES = (
    "import os, shutil, subprocess, torch\n"
    "from torch import nn\n"
    "try:\n"
    "    subprocess.run(['nvidia-smi'])\n"
    "except FileNotFoundError:\n"
    "    print('not on this machine')\n"
    "model = nn.Linear(8, 4).cuda()\n"
    "nn.init.trunc_normal_(model.weight)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for i in range(2):\n"
    "    os.makedirs(f'kept/{i}', exist_ok=True)\n"
    "    model(torch.randn(2, 8, device='cuda')).sum().backward()\n"
    "    optimizer.step()\n"
    "    torch.save(model.state_dict(), 'kept/new.pt')\n"
    "    os.replace('kept/new.pt', f'kept/{i}/model.pt')\n"
    "    assert os.path.getsize(f'kept/{i}/model.pt') == 0\n"
    "    assert os.statvfs('kept/0').f_namemax\n"
    "    shutil.rmtree(f'kept/{i}')\n"
    "    assert os.listdir('kept') == []\n"
)


def test_what_a_script_saves_is_renamed_and_deleted_as_it_would_be(
    capture: Any, tmp_path: Path
) -> None:
    assert capture(SAVES, gpus="1xH100").options["strategy"] == "single"
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_the_function_that_spawn_starts_runs_as_one_rank(capture: Any) -> None:
    job = capture(SPAWNS)
    assert job.bytes["parameters"] == 4 * 33 * 32
    assert job.options["strategy"] == "ddp"


@pytest.mark.long
def test_the_command_starts_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    Path("given.txt").write_text("given", encoding="utf-8")
    words = ["capture", "--gpus", "1x8xH100", "-o", "job.yaml", "train.py", "--width", "8"]
    assert run([*words, "--debug"]) == 0
    assert "predict --model job.yaml --gpus 1x8xH100" in capsys.readouterr().err


@pytest.mark.usefixtures("capture")
def test_the_command_writes_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(SPAWNS, encoding="utf-8")
    assert run(["capture", "--gpus", "1x8xH100", "-o", "job.yaml", "train.py"]) == 0
    assert "predict --model job.yaml --gpus 1x8xH100" in capsys.readouterr().err
    assert Path("job.yaml").is_file()


def test_a_captured_job_runs_no_script(
    capture: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    capture(SPAWNS).save(file)
    (tmp_path / "train.py").write_text("open('ran', 'w')", encoding="utf-8")
    assert run(["predict", "--model", str(file), "--gpus", "1x8xH100"]) == 0
    assert "train.py" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere.py",), "no such script: 'nowhere.py'"),
        (("--rank", "8", "train.py"), "rank must be 0 to 7"),
        (("--memory-limit", "8", "train.py"), "--memory-limit: '8' has no unit"),
        (("-o", "job.txt", "train.py"), "must end in .yaml"),
    ],
)
def test_a_wrong_command_starts_nothing(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('ran', 'w')", encoding="utf-8")
    assert run(["capture", "--gpus", "1x8xH100", *words]) == 2
    assert says in capsys.readouterr().err
    assert not Path("ran").exists()


def test_the_stages_of_a_pipeline_are_run_and_joined(capture: Any) -> None:
    folder = Path(__file__).parents[1]
    job = capture(
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
        "from setups import SETUPS\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "step = SETUPS['pipeline']()\n"
        "for _ in range(9):\n"
        "    step()\n",
        gpus="1x2xH100",
        rank=1,
    )
    assert {k: job.options[k] for k in ("pp", "grad_accum", "stages")} == {
        "pp": 2, "grad_accum": 4, "stages": "2,2",
    }  # fmt: skip
    assert job.predict().fits
