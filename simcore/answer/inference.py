"""A language model that generates text on one node: memory, and rates by its kernels' roofline.

Prefill is the forward pass of a training step on as many tokens. Decode of B sequences is the
forward pass of B tokens, each of another sequence, which reads all weights once, and then all keys
and values of the sequences (bytes over the sustained memory bandwidth). Quantised weights take as
much less time as they have fewer bytes. Both leave out ``LEFT_OUT``: the rates are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcore.answer.predict import predict
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.request.resolved import Request
from simcore.workload.archs import QUANTISED_BYTES

#: What the rates leave out.
LEFT_OUT = (
    "communication between GPUs, the host (CUDA graphs are assumed), sampling, scheduling, paging, "
    "speculation, the time to dequantise; prefill has the logits of every token"
)
#: Bytes of a weight by the precision of products: nvfp4 has a scale of 8 bits for 16 weights, mxfp4
#: and mxfp8 for 32 (OCP Microscaling Formats, version 1.0, table 1).
_BYTES = {"fp8": 1.0, "fp8-true": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
          "mxfp4": 0.5 + 1 / 32}  # fmt: skip
_WIDE = ("fp32", "fp32-ieee", "tf32")
#: Bytes of a key or value: 16 bit.
_KV_BYTES = 2.0


@dataclass(frozen=True, kw_only=True)
class Inference:
    """Memory of one GPU, and rates of the node; all ranks are tensor-parallel.

    kv_bytes_per_token   keys and values of a token, on one GPU
    sequences, context_tokens   sequences at once, and tokens of each
    prefill_s    time of the prompt of one sequence, of ``context_tokens``
    decode_s     time of a token of every sequence; None where the model routes to experts
    """

    model: str
    cluster: str
    n_gpus: int
    precision: str
    weight_bytes: float
    kv_bytes_per_token: float
    context_bytes: float
    capacity_bytes: float
    sequences: int
    context_tokens: int
    prefill_s: float
    decode_s: float | None
    notes: tuple[str, ...]

    @property
    def kv_bytes(self) -> float:
        """Keys and values of all sequences, on one GPU."""
        return self.kv_bytes_per_token * self.sequences * self.context_tokens

    @property
    def needed_bytes(self) -> float:
        """Memory of a GPU: weights, keys and values, CUDA's context."""
        return self.weight_bytes + self.kv_bytes + self.context_bytes

    @property
    def fits(self) -> bool:
        """Whether all sequences fit at once."""
        return self.needed_bytes <= self.capacity_bytes

    @property
    def most_tokens(self) -> int:
        """Tokens whose keys and values fit."""
        room = self.capacity_bytes - self.weight_bytes - self.context_bytes
        return max(0, int(room / self.kv_bytes_per_token))


def inference(
    ask: Callable[[dict[str, Any]], Request], settings: Mapping[str, Any], sequences: int,
    base: str = "none",
) -> Inference:  # fmt: skip
    """A model that generates ``sequences`` texts at once.

    ``ask`` makes the request of a training step with some options changed; ``settings``: those of
    the model's architecture; ``base``: number format of quantised weights, or none. Raises
    InvalidConfig for another kind of model, and for several nodes.
    """
    if not {"kv_heads", "mixer_pattern", "seq_len"} <= settings.keys():
        raise InvalidConfig(["--inference is for language models that predict the next token"])
    prompt = ask({"micro_batch": 1})
    cluster = prompt.cluster
    if cluster.n_nodes > 1 or len(cluster.groups) > 1:
        raise InvalidConfig([f"--inference is for one node of equal GPUs, not {cluster}"])
    tokens, n = int(prompt.options["seq_len"]), cluster.n_gpus
    latent = int(settings["kv_rank"])
    heads = int(settings["kv_heads"] or settings["heads"])
    width = int(settings["head_dim"] or settings["hidden"] // settings["heads"])
    kept = latent + int(settings["rope_dim"]) if latent else (
        (width + int(settings["value_dim"] or width)) * heads / min(n, heads)
    )  # fmt: skip
    pattern = str(settings["mixer_pattern"])
    share = pattern.count("a") / len(pattern)
    if not share:
        raise InvalidConfig(["--inference: this model keeps no keys and values"])
    kv = settings["layers"] * share * kept * _KV_BYTES
    precision = prompt.strategy.precision.name
    each = QUANTISED_BYTES.get(base, _BYTES.get(precision, 4.0 if precision in _WIDE else 2.0))
    w = prompt.workload
    numel = w.trainable_numel + w.frozen_base_numel
    first = predict(prompt)
    gpu = cluster.groups[0].gpu
    rate = gpu.memory_bw.value * prompt.profile.memory_efficiency("elementwise", gpu).value
    decode = None
    if not settings.get("experts"):
        step = predict(ask({"micro_batch": sequences, "seq_len": 1}))
        narrower = each / 2.0 if base != "none" else 1.0
        decode = step.time_s["forward"] * narrower + kv * sequences * tokens / rate
    notes = [f"left out: {LEFT_OUT}"]
    if settings.get("window"):
        notes.append("windows of attention: keys and values of all tokens are kept (upper bound)")
    if share < 1.0:
        notes.append("states of layers without attention are left out")
    if decode is None:
        notes.append("decode of routed experts is not predicted: their small products are unknown")
    return Inference(
        model=prompt.full_name,
        cluster=str(cluster),
        n_gpus=n,
        precision=precision if base == "none" else base,
        weight_bytes=numel * each / n,
        kv_bytes_per_token=kv,
        context_bytes=first.memory.terms.get("cuda_context", 0.0),
        capacity_bytes=first.memory.capacity_bytes,
        sequences=sequences,
        context_tokens=tokens,
        prefill_s=first.time_s["forward"],
        decode_s=decode,
        notes=tuple(notes),
    )
