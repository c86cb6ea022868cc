"""Training scripts that cannot run dry. The line that a message must name ends in ``# HERE``."""

from __future__ import annotations

from typing import NamedTuple

_TRAINS = """\
import torch
from torch import nn
model = nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8, device="cuda")
"""


class Cannot(NamedTuple):
    """A script and what the message about it must say."""

    text: str
    says: str

    @property
    def line(self) -> int:
        """The line that the message must name."""
        return next(i for i, t in enumerate(self.text.splitlines(), 1) if t.endswith("# HERE"))


def _after_setup(lines: str, says: str) -> Cannot:
    return Cannot(_TRAINS + lines, says)


CANNOT = {
    "a count on the device decides": _after_setup(
        "n = (model(x) > 0).sum().item()  # HERE\nif n > 3:\n    model(x).sum().backward()\n",
        "reads a torch.int64 from the device",
    ),
    "a branch on the device": _after_setup(
        "out = model(x)\nif (out > 0).any():  # HERE\n    out.sum().backward()\n",
        "reads a torch.bool from the device",
    ),
    "nonzero": _after_setup(
        "out = model(x)\nrows = out.nonzero()  # HERE\nout[rows].sum().backward()\n",
        "the shape of what nonzero returns depends on values.*use a form of fixed shape",
    ),
    "masked_select": _after_setup(
        "out = model(x)\nout[out > 0].sum().backward()  # HERE\n",
        "the shape of what nonzero returns depends on values",
    ),
    "an operator without a fake form": _after_setup(
        "library = torch.library.Library('mine', 'DEF')\n"
        "library.define('act(Tensor x) -> Tensor')\n"
        "library.impl('act', lambda x: x.clone(), 'CPU')\n"
        "torch.ops.mine.act(model(x)).sum().backward()  # HERE\n",
        "the operator mine.act.* has no implementation for fake tensors.*register_fake",
    ),
    "a kernel that takes an address": _after_setup(
        "import ctypes\nctypes.memset(model(x).data_ptr(), 0, 4)  # HERE\n",
        "asks for the memory of a tensor.*torch.library",
    ),
    "a CUDA extension that is compiled": _after_setup(
        "from torch.utils.cpp_extension import load_inline\n"
        "load_inline('mine', cpp_sources=['int f() { return 1; }'], functions=['f'])  # HERE\n",
        "compiles an extension.*register its operators",
    ),
    "a checkpoint that is not there": Cannot(
        "import torch\nstate = torch.load('/nowhere/model.pt')  # HERE\n",
        "there is no file '?/nowhere/model.pt'?: give its path",
    ),
    "a download": Cannot(
        "import urllib.request\n"
        "urllib.request.urlopen('http://example.com/data.zip')  # HERE\n",
        r"uses the network \(example.com\).*download what it needs before",
    ),
    "NCCL itself": Cannot(
        "import torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "dist.ProcessGroupNCCL.Options()  # HERE\n",
        "NCCL itself is asked.*call torch.distributed's collectives",
    ),
    "a process of the system": Cannot(
        "import subprocess\nsubprocess.run(['nvidia-smi'])  # HERE\n",
        r"starts a process \(nvidia-smi\).*run the training function itself",
    ),
    "processes of Python": Cannot(
        "import multiprocessing\n"
        "p = multiprocessing.Process(target=print)\n"
        "p.start()  # HERE\n",
        "starts a process.*run the training function itself",
    ),
    "an endless loop": _after_setup(
        "import time\nwhile True:\n    time.sleep(1)  # HERE\n",
        "still here after 1 s.*raise --time-limit",
    ),
    "too much memory": Cannot(
        "import numpy as np\n"
        "data = np.ones(10**10)  # HERE\n",
        "more memory than the dry run may take.*raise --memory-limit",
    ),
    "no step": _after_setup("model(x).sum().backward()\n# HERE\n", "without a step of an optim"),
    "arguments that are wrong": Cannot(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--config', required=True)\n"
        "parser.parse_args()  # HERE\n",
        "ends itself here.*required: --config.*arguments with which it trains",
    ),
    "no Python": Cannot("import torch\nmodel = = 3  # HERE\n", "this is not Python"),
    "a package that is not here": Cannot(
        "import package_of_nobody  # HERE\n", "package package_of_nobody is not installed"
    ),
    "quantised kernels": _after_setup(
        "w = torch.quantize_per_tensor(torch.randn(8, 8), 0.1, 0, torch.qint8)\n"
        "torch.ops.quantized.linear_prepack(w, None)  # HERE\n",
        "operator quantized::linear_prepack .*torch.library.register_fake",
    ),
    "an error of its own": Cannot(
        "settings = {}\nsettings['lr']  # HERE\n", "fails with KeyError: 'lr'"
    ),
    "a file of somebody": Cannot(
        "import os\nos.remove('{own}')  # HERE\n", "changes .*which a dry run does not"
    ),
}  # fmt: skip
