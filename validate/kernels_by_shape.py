"""Six networks by ``simcore calibrate --model`` on this processor, against plain training steps.

    python -m validate.kernels_by_shape [FOLDER]

Each network is calibrated, predicted with that profile, and then trained by a plain loop in a
process of its own. Exit code 1 where the mean error exceeds 6 %. It takes about six minutes; run it
on a machine that nobody else uses, on one core (taskset -c 0) where two are shared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from simcore.base.units import PERCENT, format_seconds
from simcore.calibrate.training import NETS

#: Largest mean error that holds.
MEAN_ERROR_FRAC = 0.06
#: Minutes of each calibration, and seconds of each plain loop.
MINUTES, LOOP_S = 0.6, 8.0
HERE = "validate.kernels_by_shape"


def lstm() -> tuple[Any, tuple[Any, ...]]:
    """A language model of two LSTM layers over 64 tokens."""
    import torch

    from simcore.calibrate.nets import Recurrent

    return Recurrent(hidden=256, vocab=2000), (torch.randint(0, 2000, (2, 64)),)


def unet() -> tuple[Any, tuple[Any, ...]]:
    """A U-Net of three levels on images of 64 x 64 pixels."""
    import torch

    from simcore.calibrate.nets import UNet

    return UNet(width=16, depth=3), (torch.randn(2, 3, 64, 64), torch.randint(0, 2, (2, 64, 64)))


#: (model, micro-batch) of each network.
JOBS = (
    *((NETS[name].model, NETS[name].batches["cpu"][0])
      for name in ("mlp", "conv", "transformer", "dit")),
    (f"{HERE}:{lstm.__name__}", 16), (f"{HERE}:{unet.__name__}", 8),
)  # fmt: skip


def measured_s(model: str, batch: int) -> float:
    """The median step of a plain loop; the processor's time where it has a single thread."""
    from importlib import import_module

    import torch

    module, _, name = model.partition(":")
    net, sample = getattr(import_module(module), name)()
    inputs = tuple(t[torch.arange(batch) % len(t)] for t in sample)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: list[float] = []
    while sum(seconds) < LOOP_S or len(seconds) < 10:
        start = clock()
        optimizer.zero_grad()
        net(*inputs).backward()
        optimizer.step()
        seconds.append(clock() - start)
    return statistics.median(seconds[3:])


def _run(*words: str) -> Any:
    """The JSON that a Python module prints."""
    done = subprocess.run(
        [sys.executable, "-m", *words], check=True, text=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def main(folder: Path) -> int:
    """Calibrate and train every network, print each error and the mean; the exit code."""
    profile, errors = folder / "this-machine.yaml", []
    for model, batch in JOBS:
        again = ["--resume"] if profile.exists() else []
        found = _run(
            "simcore", "calibrate", "--model", model, "--micro-batch", str(batch), "--precision",
            "fp32-ieee", "--minutes", str(MINUTES), "-o", str(profile), "--json", *again,
        )  # fmt: skip
        truth_s = _run(HERE, "--measure", model, str(batch))
        errors.append(found["predicted_s"] / truth_s - 1.0)
        inside = found["low_s"] <= truth_s <= found["high_s"]
        now, before, own = (format_seconds(found[f"{k}_s"])
                            for k in ("predicted", "before", "measured"))  # fmt: skip
        sys.stdout.write(
            f"{model.partition(':')[2]:<13}{batch:>4}  predicted {now} (before {before}), own step "
            f"{own}, plain loop {format_seconds(truth_s)}  {errors[-1] * PERCENT:+.1f} %"
            f"{'' if inside else ' outside'}\n"
        )
        sys.stdout.flush()
    mean = statistics.mean(map(abs, errors))
    sys.stdout.write(f"mean error {mean * PERCENT:.1f} %\n")
    return int(mean > MEAN_ERROR_FRAC)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        sys.stdout.write(json.dumps(measured_s(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:]:
        sys.exit(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as made:
            sys.exit(main(Path(made)))
