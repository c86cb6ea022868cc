"""The very training step of a model, built with torch and run on this machine.

Weights are random and nothing is downloaded. Imports torch: import it only to build a step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch

from simcore.base.errors import UsageError
from simcore.strategy.optimizers import implementation_of
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.settings import names_code, permitted
from simcore.workload.trace.inputs import InputShape, parse_inputs
from simcore.workload.trace.recorder import leaves
from simcore.workload.trace.tracer import scalar_of
from simcore.workload.trace.zoos import ready_torchvision, zoo_of

#: Scale of random weights (that of GPT-2's and BERT's initialisation); values change no time as
#: long as they are neither zero nor too small for normalised numbers.
WEIGHT_SCALE: Final = 0.02
#: Whole numbers in inputs that are given by shape alone are below this, since they may be labels
#: or tokens, whose number is not known.
CLASSES: Final = 10
#: Ends of names of classes that take tokens and labels: a label a token, or (the last) a sequence.
_TEXT: Final = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification")
_WIDTHS: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: simcore's name of an optimizer -> its class in ``torch.optim`` and arguments.
_OPTIMIZERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "adamw": ("AdamW", {}), "adam": ("Adam", {}), "sgd": ("SGD", {"momentum": 0.9}),
    "sgd-plain": ("SGD", {}), "rmsprop": ("RMSprop", {}), "adagrad": ("Adagrad", {}),
    "adafactor": ("Adafactor", {}), "nadam": ("NAdam", {}), "radam": ("RAdam", {}),
    "adamax": ("Adamax", {}), "adadelta": ("Adadelta", {}),
}  # fmt: skip


def width_of(precision: Precision) -> Any:
    """The torch dtype of parameters, and that of autocast or None."""
    low = _WIDTHS.get(precision.peak)
    if precision.peak not in ("fp32", "tf32", "bf16", "fp16"):
        raise UsageError(f"plain PyTorch has no {precision.name} to time")
    return (torch.float32, low) if precision.param_bytes == 4 else (low, None)


@contextmanager
def precision_set(precision: Precision) -> Iterator[None]:
    """A context in which TF32 is allowed as the precision says."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = precision.peak == "tf32"
    cudnn.allow_tf32 = "tf32" in (precision.peak, precision.conv_peak)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


class RealStep:
    """A module with inputs and a loss on a device: forward, backward and update."""

    def __init__(
        self, module: Any, inputs: tuple[Any, ...], loss: Any, strategy: Strategy, device: str
    ) -> None:
        weights, self._autocast = width_of(strategy.precision)
        self.module = module.to(device).train()
        if weights != torch.float32:
            self.module = self.module.to(weights)
        self.inputs = tuple(_moved(t, device, weights) for t in inputs)
        self._loss, self._device, self._precision = loss, device, strategy.precision
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(strategy, trained)

    def loss(self) -> Any:
        """The loss of a forward pass."""
        cast: Any = nullcontext()
        if self._autocast is not None:
            cast = torch.autocast(self._device, dtype=self._autocast)
        with cast:
            return scalar_of(self.module(*self.inputs), self._loss)

    def differentiate(self) -> None:
        """Forward and backward; gradients are dropped first, as by ``zero_grad``."""
        self.optimizer.zero_grad()
        self.loss().backward()

    def __call__(self) -> None:
        """One training step."""
        with precision_set(self._precision):
            self.differentiate()
            self.optimizer.step()


def optimizer_of(strategy: Strategy, parameters: list[Any]) -> Any:
    """torch's optimizer of a job. Raises UsageError where torch has none of that name.

    What is not fused runs as torch chooses: foreach on a GPU, a loop over tensors on a processor.
    """
    record, word = implementation_of(strategy.optimizer)
    if word or record.name not in _OPTIMIZERS:
        raise UsageError(f"torch.optim has no {strategy.optimizer.name}")
    name, more = _OPTIMIZERS[record.name]
    fused = {"fused": True} if strategy.step_impl == "fused" else {}
    return getattr(torch.optim, name)(parameters, lr=1e-5, **more, **fused)


def _moved(tensor: Any, device: str, weights: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    wide = tensor.is_floating_point() and weights != torch.float32
    return tensor.detach().to(device, dtype=weights if wide else tensor.dtype)


def built_step(
    model: str, inputs: tuple[str, ...], batch: int, strategy: Strategy, device: str,
    tokens: int = 0,
) -> RealStep:  # fmt: skip
    """The step of a module, of a vision library's network or of a Hugging Face text config.

    ``tokens``: of a sample. Raises UsageError for other models, and with the model's own exception.
    """
    shapes = parse_inputs(inputs)
    if Path(model).suffix == ".json":
        return RealStep(*_of_config(Path(model), batch, tokens), None, strategy, device)
    if zoo_of(model):
        library = zoo_of(model)
        assert library is not None
        network = library[0].find(library[1], shapes, "own")
        module = _with_random_weights(network.module)
        sample: tuple[Any, ...] | None = None
        shapes, loss = network.inputs, network.loss
    elif names_code(model):
        from simcore.workload.trace.callables import built_from, find_callable

        text = permitted(model)
        made = built_from(find_callable(text)(), text)
        module, sample, loss = made.module, made.sample, made.loss
    else:
        raise UsageError(
            f"torch builds modules, vision libraries' networks and configs: not {model}"
        )
    if shapes:
        sample = tuple(_random(shape, batch) for shape in shapes)
        if any(shape.channels_last for shape in shapes):
            module = module.to(memory_format=torch.channels_last)
    elif sample is None:
        raise UsageError(f"{model} needs its inputs: --input 'float32[B,3,224,224]'")
    else:
        sample = _resized(sample, batch)
    return RealStep(module, sample, _on(loss, device), strategy, device)


class _Named(torch.nn.Module):  # type: ignore[misc]
    """A model of transformers that takes tokens and labels by name and returns its loss."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, labels: Any) -> Any:
        """The loss."""
        return self.model(input_ids=ids, labels=labels).loss


def _of_config(file: Path, batch: int, tokens: int) -> tuple[Any, tuple[Any, ...]]:
    """A model of transformers with random weights, its tokens and labels.

    Raises UsageError where the config's class takes no text, or transformers is missing.
    """
    stated = json.loads(file.read_text(encoding="utf-8"))
    name = next(iter(stated.get("architectures") or ()), "")
    try:
        ready_torchvision()  # transformers imports it
        import transformers

        made = getattr(transformers, name, None) if name.endswith(_TEXT) else None
    except ImportError as err:
        raise UsageError(f"transformers, which builds a config, cannot be imported: {err}") from err
    if made is None or not tokens:
        raise UsageError(f"transformers' {name or 'class'} is not built here: it takes no text")
    config = made.config_class(**{k: v for k, v in stated.items() if k != "model_type"})
    vocab = int(getattr(config, "vocab_size", CLASSES))
    ids = torch.randint(0, vocab, (batch, tokens))
    labels = torch.zeros(batch, dtype=torch.int64) if name.endswith(_TEXT[-1]) else ids
    return _Named(made(config)), (ids, labels)


def _on(loss: Callable[..., Any] | None, device: str) -> Callable[..., Any] | None:
    """The loss with tensors that it makes on the device (labels)."""
    if loss is None:
        return None

    def on_device(output: Any) -> Any:
        with torch.device(device):
            return loss(output)

    return on_device


def _random(shape: InputShape, batch: int) -> Any:
    dtype = getattr(torch, shape.dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, 2 if dtype == torch.bool else CLASSES, shape.at(batch)).to(dtype)
    made = torch.randn(shape.at(batch), dtype=dtype)
    return made.contiguous(memory_format=torch.channels_last) if shape.channels_last else made


def _resized(sample: tuple[Any, ...], batch: int) -> tuple[Any, ...]:
    """The sample with its first dimension (the batch) repeated or cut to ``batch``."""
    of = next(int(t.shape[0]) for t in leaves(sample) if t.dim())
    at = torch.arange(batch) % of

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value[at.to(value.device)] if value.dim() and value.shape[0] == of else value
        if isinstance(value, (list, tuple)):
            return type(value)(one(v) for v in value)
        return {k: one(v) for k, v in value.items()} if isinstance(value, dict) else value

    return tuple(one(v) for v in sample)


def _with_random_weights(module: Any) -> Any:
    """A module that was built without memory, with random weights and neutral statistics."""
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0.0, WEIGHT_SCALE) if p.dim() > 1 else p.fill_(1.0)
        for name, b in module.named_buffers():
            b.fill_(1.0 if name.endswith("running_var") else 0.0)
    return module
