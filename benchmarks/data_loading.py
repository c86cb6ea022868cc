"""Time what a DataLoader costs on this machine: starting and ending workers, reading samples.

    python -m benchmarks.data_loading -o validate/tables/data_loading.yaml

Needs torch, Pillow and PyAV (``av``), which the package itself does not. Three parts:

- ``workers``: an epoch of an empty data set by number of workers and by the memory that the
  training process has touched; a worker is a fork, whose cost is the page tables. The slope over
  the number of workers is the time to start one, and to end one, in the training process.
- ``clips``: video clips read whole and turned into 16 frames, step by step as torchvision's
  ``read_video`` and Latte's ``datasets/ffs_datasets.py`` do: processor seconds by size of the file.
- ``images``: JPEG images decoded, cropped to 224 pixels, flipped and turned into a tensor, as the
  ImageNet example of PyTorch does with torchvision and Pillow.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

FRAMES = 510
REPEATS = 5


class Nothing:
    """A data set whose samples cost nothing, so that only the workers are timed."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


def worker_times_s(workers: int) -> tuple[float, float]:
    """Seconds from ``iter`` to the first batch, and to end the workers; medians of repeats."""
    from torch.utils.data import DataLoader, Subset

    data = Subset(Nothing(), range(4 * workers))  # type: ignore[arg-type]
    starts, ends = [], []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        batches = iter(DataLoader(data, batch_size=1, num_workers=workers))
        next(batches)
        starts.append(time.perf_counter() - begun)
        for _ in range(4 * workers - 1):
            next(batches)
        ending = time.perf_counter()
        next(batches, None)
        ends.append(time.perf_counter() - ending)
    return median(starts), median(ends)


def slope(counts: list[int], seconds: list[float]) -> float:
    """Seconds a worker: the slope of a straight line."""
    return float(np.polyfit(counts, seconds, 1)[0])


def time_workers(touched_gb: list[float]) -> list[dict[str, Any]]:
    """Start and end of workers by the memory that the parent has touched."""
    rows, held = [], []
    counts = [1, 2, 4, 8, 16]
    for gb in touched_gb:
        while sum(h.nbytes for h in held) < gb * 1e9:
            held.append(np.ones(125_000_000 // 2))
        times = [worker_times_s(n) for n in counts]
        rows.append(
            {
                "touched_gb": gb,
                "start_ms_a_worker": round(1e3 * slope(counts, [t[0] for t in times]), 2),
                "end_ms_a_worker": round(1e3 * slope(counts, [t[1] for t in times]), 2),
                "first_batch_of_16_workers_ms": round(1e3 * times[-1][0], 1),
                "end_of_16_workers_ms": round(1e3 * times[-1][1], 1),
            }
        )
    return rows


def picture(index: int, height: int, width: int) -> np.ndarray:
    """A picture of the moving test pattern: smooth waves, a moving disc and fine texture."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    t = index / 25.0
    waves = 60 * np.sin(x / 37 + t) + 50 * np.cos(y / 29 - 0.7 * t)
    across, down = x - width / 2 - 30 * np.sin(t), y - height / 2 - 20 * np.cos(t)
    disc = 40 * (across**2 + down**2 < (0.3 * height) ** 2)
    texture = np.random.default_rng(1).normal(0, 12, (height, width)).astype(np.float32)
    base = 128 + waves + disc + np.roll(texture, index % width, axis=1)
    return np.clip(np.stack([base, 0.9 * base, 0.8 * base + 20], -1), 0, 255).astype(np.uint8)


#: Clips of H.264: height, width, quality (crf of libx264) and grain (standard deviation of noise).
CLIPS = (
    (256, 256, 23, 0), (256, 256, 23, 8), (256, 256, 15, 8), (256, 256, 8, 8), (256, 256, 2, 8),
    (480, 854, 23, 0),
)  # fmt: skip


def make_clip(path: Path, height: int, width: int, quality: int, grain: float) -> None:
    """Write a clip as one of ``CLIPS`` says."""
    import av

    rng = np.random.default_rng(0)
    options = {"crf": str(quality), "preset": "fast"}
    with av.open(str(path), "w") as out:
        shape = {"height": height, "width": width, "pix_fmt": "yuv420p"}
        stream = out.add_stream("libx264", rate=25, options=options, **shape)
        for index in range(FRAMES):
            noisy = picture(index, height, width) + rng.normal(0, grain, (height, width, 1))
            pixels = np.clip(noisy, 0, 255).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())


def read_clip(path: Path) -> Any:
    """16 consecutive frames of a clip that is decoded whole, as fp32 of 256 pixels."""
    import av
    import torch

    with av.open(str(path), metadata_errors="ignore") as container:
        frames = {f.pts: f for f in container.decode(video=0)}
    ordered = [frames[pts] for pts in sorted(frames)]
    whole = torch.as_tensor(np.stack([f.to_rgb().to_ndarray() for f in ordered]))
    clip = whole.permute(0, 3, 1, 2)[np.linspace(100, 115, 16, dtype=int)].float() / 255
    scale = 256 / min(clip.shape[-2:])
    clip = torch.nn.functional.interpolate(clip, scale_factor=scale, mode="bilinear")
    return (clip[..., :256, :256] - 0.5) / 0.5


def read_image(encoded: bytes) -> Any:
    """A JPEG image as an fp32 tensor of 224 pixels: decode, random crop, flip, scale, normalise."""
    import torch
    from PIL import Image

    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    cut = image.crop((60, 40, 420, 330)).resize((224, 224), Image.Resampling.BILINEAR)
    cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    tensor = torch.from_numpy(np.array(cut)).permute(2, 0, 1).contiguous().float().div(255)
    return (tensor - 0.45) / 0.225


def processor_s(read: Callable[[Any], Any], what: Any, times: int = 1) -> float:
    """Processor seconds of one reading: the least of ``REPEATS`` means of ``times`` readings."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        for _ in range(times):
            read(what)
        found.append((time.process_time() - begun) / times)
    return min(found)


def time_clips(folder: Path) -> list[dict[str, Any]]:
    """Processor seconds to read a clip by its size."""
    rows = []
    for height, width, quality, grain in CLIPS:
        path = folder / f"{height}x{width}-{quality}-{grain}.mp4"
        if not path.exists():
            make_clip(path, height, width, quality, grain)
        n_bytes = path.stat().st_size
        rows.append(
            {
                "height": height,
                "width": width,
                "frames": FRAMES,
                "megabytes": round(n_bytes / 1e6, 2),
                "processor_s": round(processor_s(read_clip, path), 3),
            }
        )
    return rows


def time_images() -> list[dict[str, Any]]:
    """Processor seconds to read an image of ImageNet's mean size (about 500 x 375, 110 kB)."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(picture(3, 375, 500)).save(out, "JPEG", quality=92)
    each = processor_s(read_image, out.getvalue(), 200)
    return [
        {
            "height": 375,
            "width": 500,
            "bytes": len(out.getvalue()),
            "processor_s": round(each, 5),
        }
    ]


def clock_hz() -> float:
    """Additions that wait for one another a second, one a clock: the processor's clock, nearly."""
    import ctypes
    import subprocess

    source = """long f(long n) {
        long x = 0;
        for (long i = 0; i < n; i++) __asm__ volatile("add $1,%0" : "+r"(x));
        return x;
    }"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f.c").write_text(source)
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", f"{folder}/f.so", f"{folder}/f.c"]
        subprocess.run(command, check=True)
        f = ctypes.CDLL(f"{folder}/f.so").f
        f.argtypes, f.restype = [ctypes.c_long], ctypes.c_long
        f(10_000_000)
        begun = time.perf_counter()
        f(1_000_000_000)
        return 1e9 / (time.perf_counter() - begun)


def machine() -> dict[str, Any]:
    """What was measured on, and with what."""
    import av
    import PIL
    import torch

    cpu = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": cpu.get("model name", "unknown"),
        "family": f"{cpu.get('cpu family')}, model {cpu.get('model')}",
        "cores": os.cpu_count(),
        "clock_ghz": round(clock_hz() / 1e9, 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "av": av.__version__,
        "pillow": PIL.__version__,
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--touched-gb", type=float, nargs="+", default=[0, 4, 8])
    parser.add_argument(
        "--clips", type=Path, help="folder in which clips are kept for the next run"
    )
    args = parser.parse_args()
    import torch
    import yaml

    torch.set_num_threads(1)  # as a worker of the DataLoader
    found: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        found["clips"] = time_clips(args.clips or Path(folder))
    found["images"] = time_images()
    found["workers"] = time_workers(args.touched_gb)
    head = "# Written by python -m benchmarks.data_loading, which says what each part is.\n"
    args.output.write_text(head + yaml.safe_dump(found, sort_keys=False))


if __name__ == "__main__":
    main()
