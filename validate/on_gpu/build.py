"""Builds the network of a job with its inputs and loss, and the file by which simcore is asked.

torch and the libraries are imported when a job needs them; a job whose library is missing is
skipped, with the reason. Nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import UsageError
from simcore.calibrate.training import Input
from validate.on_gpu.jobs import Job, Net, net_of

#: Inputs of bert's classifier besides the tokens.
_CLASSES: Final = 2


@dataclass(frozen=True)
class Built:
    """A module, its inputs on the host, and the loss of a call."""

    module: Any
    inputs: tuple[Any, ...]
    loss: Callable[..., Any]


def library(name: str) -> Any:
    """A library. Raises UsageError where it is not installed, or broken."""
    from importlib import import_module

    from simcore.workload.trace.zoos import ready_torchvision

    try:
        ready_torchvision()
        return import_module(name)
    except Exception as err:  # a broken installation raises anything
        raise UsageError(f"{name} cannot be used here: {err}") from None


def module_of(net: Net) -> Any:
    """The module with random weights. Raises UsageError."""
    if net.origin == "module":
        from simcore.calibrate.nets import MAKERS

        return MAKERS[net.name](**net.settings)
    if net.origin == "torchvision":
        return getattr(library("torchvision").models, net.name)(weights=None)
    if net.origin == "timm":
        extra = {"img_size": net.pixels} if "vit" in net.name else {}
        return library("timm").create_model(net.name, pretrained=False, **extra)
    transformers = library("transformers")
    config = transformers.AutoConfig.for_model(**net.settings, use_cache=False)
    return getattr(transformers, net.name)(config)


def build(job: Job, device: str, *, is_small: bool) -> Built:
    """The module of a job on ``device`` in training mode, with inputs of its batch on the host.

    Weights are made on the device in the dtype that they keep, which is faster, and leaves no copy
    of another dtype among the allocator's blocks. Raises UsageError.
    """
    import torch
    from torch.nn.functional import cross_entropy

    net = net_of(job, is_small=is_small)
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if job.precision == "bf16-true" else kept)
    try:
        with torch.device(device):
            module = module_of(net).train()
    finally:
        torch.set_default_dtype(kept)
    if net.origin == "module":
        return Built(module, tuple(i.make(job.batch) for i in net.inputs), module)
    if net.origin != "config":
        images = torch.randn(job.batch, 3, net.pixels, net.pixels)
        labels = torch.randint(0, 1000, (job.batch,))
        return Built(module, (images, labels), lambda x, y: cross_entropy(module(x), y))
    tokens = torch.randint(0, module.config.vocab_size, (job.batch, job.seq))
    if net.name.endswith("ForSequenceClassification"):
        labels = torch.randint(0, _CLASSES, (job.batch,))
        mask = torch.ones_like(tokens)
        return Built(
            module, (tokens, mask, labels),
            lambda x, m, y: module(input_ids=x, attention_mask=m, labels=y).loss,
        )  # fmt: skip
    return Built(module, (tokens,), lambda x: module(input_ids=x, labels=x).loss)


def model_file(job: Job, folder: Path, *, is_small: bool) -> str:
    """The name of the file in ``folder`` by which ``--model`` names the job's network.

    It is written if it is not there: a config, or the trace of a module or a library's network.
    Raises UsageError.
    """
    net = net_of(job, is_small=is_small)
    if net.origin == "config":
        file = folder / job.net / "config.json"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(dict(net.settings), indent=1) + "\n", encoding="utf-8")
        return str(file.relative_to(folder))
    layout = " channels_last" if job.channels_last else ""
    file = folder / f"{job.net}{layout.replace(' ', '-')}.yaml"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(_traced(net, job.net, layout), encoding="utf-8")
    return file.name


def _traced(net: Net, name: str, layout: str) -> str:
    """The trace of a network as a file of models_db, made without memory for its weights."""
    from simcore.workload.trace import trace_data
    from simcore.workload.trace.callables import Built as Made
    from simcore.workload.trace.callables import record_data
    from simcore.workload.trace.inputs import parse_inputs
    from simcore.workload.trace.light import light
    from simcore.workload.trace.yamlout import yaml_text

    if net.origin == "module":
        shapes = parse_inputs(tuple(_shape(one, layout) for one in net.inputs))
        made = Made(light(partial(module_of, net), name), None, None)
        return yaml_text(record_data(made, shapes, f"simcore.calibrate.nets:{net.name}"), name)
    image = f"float32[B,3,{net.pixels},{net.pixels}]{layout}"
    return yaml_text(trace_data(f"{net.origin}:{net.name}", (image,)), name)


def _shape(one: Input, layout: str) -> str:
    """An input as ``--input`` takes it; images, which have four dimensions, in the layout."""
    dims = ",".join(map(str, ("B", *one.shape)))
    kind = "int64" if one.classes else "float32"
    return f"{kind}[{dims}]{layout if len(one.shape) == 3 and not one.classes else ''}"
