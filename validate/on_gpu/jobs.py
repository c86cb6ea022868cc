"""The jobs to train: what each is, and how it is put to ``simcore predict``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from simcore.calibrate.training import Input

#: Where a net is from: a module of ``simcore.calibrate.nets``, torchvision, timm, or transformers
#: by a config. None downloads anything: weights are random.
Origin = Literal["module", "torchvision", "timm", "config"]


@dataclass(frozen=True)
class Net:
    """A network. ``small``: the settings, name, pixels or inputs that differ with ``--small``.

    ``name``: of ``simcore.calibrate.nets.MAKERS``, or name in the library; of a config the class of
    transformers. ``settings``: arguments of the class, or keys of the config. ``inputs``: of a
    module; images of the library's nets have ``pixels`` a side.
    """

    origin: Origin
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    pixels: int = 224
    small: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training step of ``net`` with a batch; the fields are those of a job of simcore.

    ``by_name``: the entry of models_db by which it is asked, instead of the net itself, and with
    ``software`` the program that trains it.
    """

    id: str
    net: str
    batch: int
    precision: str = "amp-bf16"
    optimizer: str = "adamw"
    seq: int = 0
    accum: int = 1
    channels_last: bool = False
    recompute: bool = False
    compiled: bool = False
    optimizer_impl: str = "foreach"
    lora_rank: int = 0
    ema: bool = False
    by_name: str = ""
    software: str = ""

    def words(self, gpu: str, model: str) -> str:
        """The arguments after ``simcore``; ``model``: the file of the net."""
        options: dict[str, Any] = {
            "model": self.by_name or model, "gpus": f"1x{gpu}", "micro-batch": self.batch,
            "precision": self.precision, "optimizer": self.optimizer,
            "recompute": "full" if self.recompute else "none",
        }  # fmt: skip
        if self.seq:
            options["seq-len"] = self.seq
        if self.accum > 1:
            options["grad-accum"] = self.accum
        if self.optimizer_impl != "foreach":
            options["optimizer-impl"] = self.optimizer_impl
        if self.compiled:
            options["compile"] = "on"
        if self.software:
            options["software"] = self.software
        if self.ema:
            options["ema"] = "on"
        if self.lora_rank:
            options |= {"lora-rank": self.lora_rank, "lora-targets": "q_proj,v_proj"}
        words = [w for name, value in options.items() for w in (f"--{name}", str(value))]
        return shlex.join(["predict", *words])


def _config(architecture: str, small: Mapping[str, Any], **keys: Any) -> Net:
    return Net("config", architecture, {"architectures": [architecture], **keys}, small=small)


_GPT: Final[dict[str, Any]] = {
    "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "attn_pdrop": 0.1,
    "embd_pdrop": 0.1, "resid_pdrop": 0.1,
}  # fmt: skip
_GPT_SMALL = {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 2000}
_BERT_SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4,
               "intermediate_size": 512, "vocab_size": 2000}  # fmt: skip
_LLAMA_SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4,
                "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 2000}  # fmt: skip
_LATENT = (Input((4, 32, 32)), Input((256,)), Input((256, 16)))

NETS: Final[Mapping[str, Net]] = {
    "resnet50": Net("torchvision", "resnet50", small={"pixels": 64}),
    "efficientnet_b0": Net("timm", "efficientnet_b0", small={"pixels": 64}),
    "vit_base": Net("timm", "vit_base_patch16_224", small={"name": "vit_tiny_patch16_224"}),
    "convnext_tiny": Net("timm", "convnext_tiny", small={"pixels": 64}),
    "gpt2": _config("GPT2LMHeadModel", _GPT_SMALL, **_GPT, n_embd=768, n_layer=12, n_head=12),
    "gpt2_medium": _config("GPT2LMHeadModel", _GPT_SMALL, **_GPT, n_embd=1024, n_layer=24,
                           n_head=16),
    "bert_large": _config("BertForSequenceClassification", _BERT_SMALL, model_type="bert",
                          hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                          intermediate_size=4096, vocab_size=30522, type_vocab_size=2,
                          max_position_embeddings=512, hidden_dropout_prob=0.1,
                          attention_probs_dropout_prob=0.1),
    "llama_1b": _config("LlamaForCausalLM", _LLAMA_SMALL, model_type="llama", vocab_size=128256,
                        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                        num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5,
                        max_position_embeddings=131072, tie_word_embeddings=True),
    "mixtral": _config("MixtralForCausalLM", _LLAMA_SMALL, model_type="mixtral", vocab_size=32000,
                       hidden_size=1024, intermediate_size=3584, num_hidden_layers=8,
                       num_attention_heads=16, num_key_value_heads=8, num_local_experts=8,
                       num_experts_per_tok=2),
    "dit_xl": Net("module", "dit", {"hidden": 1152, "latent": 32, "layers": 28, "heads": 16},
                  _LATENT, small={"hidden": 96, "layers": 2, "heads": 4}),
    "nano_gpt": Net("module", "transformer", {"hidden": 768, "vocab": 50304, "seq": 1024,
                    "layers": 12, "heads": 12}, (Input((1024,), 50304),),
                    small={"hidden": 128, "vocab": 2000, "seq": 64, "layers": 2, "heads": 4,
                           "inputs": (Input((64,), 2000),)}),
    "mlp_wide": Net("module", "mlp", {"widths": (2048,) * 25 + (1000,), "norms": True},
                    (Input((2048,)), Input((), 1000)), small={"widths": (2048, 256, 1000)}),
    "lstm": Net("module", "recurrent", {"hidden": 1024}, (Input((128,), 10_000),),
                small={"hidden": 64, "vocab": 500, "layers": 1, "inputs": (Input((32,), 500),)}),
    "unet": Net("module", "unet", {}, (Input((3, 512, 512)), Input((512, 512), 2)),
                small={"width": 4, "inputs": (Input((3, 64, 64)), Input((64, 64), 2))}),
}  # fmt: skip

_R50, _GPT2, _GPTM, _BERT, _LLAMA = "resnet50", "gpt2", "gpt2_medium", "bert_large", "llama_1b"
_LAST: Final[dict[str, Any]] = {"channels_last": True}
_BF16: Final = "bf16-true"
JOBS: Final[tuple[Job, ...]] = (
    Job(id="r50-fp32-b64", net=_R50, batch=64, precision="fp32", optimizer="sgd"),
    Job(id="r50-amp-cl-b128", net=_R50, batch=128, optimizer="sgd", **_LAST),
    Job(id="gpt2-amp-b8", net=_GPT2, batch=8, seq=1024),
    Job(id="llama-bf16-b4", net=_LLAMA, batch=4, seq=2048, precision=_BF16),
    Job(id="dit-amp-b64", net="dit_xl", batch=64),
    Job(id="bert-amp-b32-s128", net=_BERT, batch=32, seq=128),
    Job(id="nano-amp-b16", net="nano_gpt", batch=16),
    Job(id="mlp-fp32-b64", net="mlp_wide", batch=64, precision="fp32"),
    Job(id="unet-amp-b8", net="unet", batch=8, **_LAST),
    Job(id="lstm-fp32-b64", net="lstm", batch=64, precision="fp32"),
    Job(id="effnet-amp-cl-b128", net="efficientnet_b0", batch=128, optimizer="sgd", **_LAST),
    Job(id="vit-amp-b128", net="vit_base", batch=128),
    Job(id="mixtral-bf16-b4", net="mixtral", batch=4, seq=1024, precision=_BF16),
    Job(id="r50-amp-b128", net=_R50, batch=128, optimizer="sgd"),
    Job(id="r50-fp32-b64-name", net=_R50, batch=64, precision="fp32", optimizer="sgd",
        by_name="resnet-50"),
    Job(id="gpt2-amp-b8-name", net=_GPT2, batch=8, seq=1024, by_name="gpt2",
        software="transformers"),
    Job(id="gpt2m-amp-b8", net=_GPTM, batch=8, seq=1024),
    Job(id="r50-tf32-b256", net=_R50, batch=256, precision="tf32", optimizer="sgd"),
    Job(id="gpt2-tf32-b8", net=_GPT2, batch=8, seq=1024, precision="tf32"),
    Job(id="gpt2-fp32-b4", net=_GPT2, batch=4, seq=1024, precision="fp32"),
    Job(id="llama-bf16-b4-recompute", net=_LLAMA, batch=4, seq=2048, precision=_BF16,
        recompute=True),
    Job(id="llama-lora-b4", net=_LLAMA, batch=4, seq=2048, precision=_BF16, lora_rank=16),
    Job(id="gpt2-amp-b1-s256", net=_GPT2, batch=1, seq=256),
    Job(id="r50-amp-cl-b16", net=_R50, batch=16, optimizer="sgd", **_LAST),
    Job(id="r50-fp16-cl-b128", net=_R50, batch=128, precision="amp-fp16", optimizer="sgd", **_LAST),
    Job(id="r50-ieee-b64", net=_R50, batch=64, precision="fp32-ieee", optimizer="sgd"),
    Job(id="gpt2m-amp-b8-fused", net=_GPTM, batch=8, seq=1024, optimizer_impl="fused"),
    Job(id="gpt2-amp-b8-loop", net=_GPT2, batch=8, seq=1024, optimizer_impl="for-loop"),
    Job(id="gpt2-amp-b8-accum4", net=_GPT2, batch=8, seq=1024, accum=4),
    Job(id="bert-fp32-b16-s512", net=_BERT, batch=16, seq=512, precision="fp32"),
    Job(id="dit-tf32-b32-ema", net="dit_xl", batch=32, precision="tf32", ema=True),
    Job(id="convnext-amp-b64", net="convnext_tiny", batch=64),
    Job(id="lstm-amp-b64", net="lstm", batch=64),
    Job(id="gpt2-amp-b8-compile", net=_GPT2, batch=8, seq=1024, compiled=True),
    Job(id="gpt2m-amp-b8-compile", net=_GPTM, batch=8, seq=1024, compiled=True),
)  # fmt: skip
#: Jobs whose largest batch is searched.
LARGEST: Final = ("gpt2m-amp-b8", "r50-fp32-b64")


def small(job: Job) -> Job:
    """The job as a processor runs it: two short samples in fp32, with the optimizer's default."""
    return replace(
        job, batch=2, precision="fp32", seq=min(job.seq, 64), accum=min(job.accum, 2),
        channels_last=False, compiled=False, optimizer_impl="for-loop", by_name="", software="",
    )  # fmt: skip


def net_of(job: Job, *, is_small: bool) -> Net:
    """The job's network, or its small form."""
    net = NETS[job.net]
    if not is_small:
        return net
    fields = {k: net.small[k] for k in ("name", "pixels", "inputs") if k in net.small}
    settings = {k: v for k, v in net.small.items() if k not in fields}
    return replace(net, settings={**net.settings, **settings}, **fields)
