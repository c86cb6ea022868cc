"""Scripts of libraries, as they are, against two real gloo processes; without these, by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.long
HERE = Path(__file__).parent
STEPS = 3

_LLAMA = """\
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
CPU = "cpu" in sys.argv
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=204, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2))
"""
TRAINER = (
    _LLAMA
    + """\
from transformers import Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        x = torch.randint(0, 200, (32,))
        return {"input_ids": x, "labels": x, "attention_mask": torch.ones_like(x)}
more = {"fsdp": "full_shard auto_wrap",
        "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
args = TrainingArguments("out", per_device_train_batch_size=2, max_steps=9, report_to="none",
                         use_cpu=CPU, logging_steps=1, gradient_accumulation_steps=2,
                         **(more if "fsdp" in sys.argv else {}))
Trainer(model=model, args=args, train_dataset=Data()).train()
"""
)
TRL = (
    _LLAMA
    + """\
import random
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
words = ["<unk>", "<s>", "</s>", "<pad>"] + [f"w{i}" for i in range(200)]
core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<s>",
                                    eos_token="</s>", pad_token="<pad>")
random.seed(0)
rows = [{"text": " ".join(random.choices(words[4:], k=40))} for _ in range(200)]
SFTTrainer(
    model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
    args=SFTConfig("out", per_device_train_batch_size=2, max_steps=9, max_length=32,
                   report_to="none", logging_steps=1, bf16=False, use_cpu=CPU),
    peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
).train()
"""
)
_NET = """\
import sys
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
CPU = "cpu" in sys.argv
net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
data = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,))), batch_size=8,
                  shuffle=True)
"""
ACCELERATE = (
    _NET
    + """\
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2, cpu=CPU)
model, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), data)
for x, y in data:
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(accelerator.gather(loss).mean().item())
accelerator.save_state("out")
"""
)
LIGHTNING = (
    _NET
    + """\
import lightning as L
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, i):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
L.Trainer(max_epochs=1, accelerator="cpu" if CPU else "gpu", devices=2, strategy="ddp",
          precision="bf16-mixed", logger=False, enable_checkpointing=False).fit(Net(), data)
"""
)
SCRIPTS = {
    "transformers": (TRAINER, {"software": "transformers", "grad_accum": 2, "grad_clip": True}),
    "trl": (TRL, {"software": "trl", "lora_rank": 8, "recompute": "full"}),
    "accelerate": (ACCELERATE, {"software": "accelerate", "precision": "amp-bf16",
                                "grad_accum": 2, "grad_clip": True}),
    "lightning": (LIGHTNING, {"software": "lightning", "precision": "amp-bf16"}),
}  # fmt: skip


#: train.py of timm's repository, which the package does not have.
TIMM_SCRIPT = os.environ.get("TIMM_SCRIPT", "")


def real(folder: Path, script: Path, *words: str) -> list[dict[str, Any]]:
    """What each of two real ranks held and sent in its last step."""
    results = [folder / f"{rank}.json" for rank in range(2)]
    port = str(20000 + os.getpid() % 20000)
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "gloo_script.py"), str(result), str(script), *words],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                 "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        for rank, result in enumerate(results)
    ]  # fmt: skip
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-2000:]
    return [json.loads(result.read_text()) for result in results]


def are_equal(job: Any, ranks: list[dict[str, Any]]) -> None:
    for truth in ranks:
        for term in ("parameters", "gradients", "optimizer_state"):
            assert job.bytes[term] == truth[term], term
        sent = Counter(f"{c.kind} {c.n_bytes}" for c in job.collectives)
        assert sent == truth["collectives"]
        assert job.bytes["peak"] == pytest.approx(truth["peak"], rel=0.02)


@pytest.mark.skipif(not TIMM_SCRIPT, reason="TIMM_SCRIPT names no train.py of timm's repository")
def test_timm_s_script_holds_and_sends_what_real_ranks_do(capture: Any, tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    for part in ("train", "validation"):
        for at in range(80):
            file = tmp_path / part / "ab"[at % 2] / f"{at}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            images.new("RGB", (256, 256), (at, 0, 0)).save(file)
    words = ["--data-dir", str(tmp_path), "--model", "resnet18", "--num-classes", "2", "-b", "8",
             "--opt", "sgd", "--workers", "0", "--epochs", "1", "--no-prefetcher"]  # fmt: skip
    job = capture(Path(TIMM_SCRIPT).read_text(), *words, gpus="1x2xH100", steps=STEPS)
    are_equal(job, real(tmp_path, tmp_path / "train.py", *words, "--device", "cpu"))
    assert (job.options["strategy"], job.options["optimizer"]) == ("ddp", "sgd")
    assert job.predict().fits


@pytest.mark.parametrize("library", SCRIPTS)
def test_a_library_s_script_holds_and_sends_what_real_ranks_do(
    library: str, capture: Any, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    pytest.importorskip("accelerate" if library != "lightning" else library)
    text, options = SCRIPTS[library]
    job = capture(text, gpus="1x2xH100", steps=STEPS)
    are_equal(job, real(tmp_path, tmp_path / "train.py", "cpu"))
    assert {k: job.options[k] for k in options} == options
    assert job.predict().fits


def test_trainer_with_fsdp_by_hand(capture: Any) -> None:
    """Accelerate does not shard on processors, so that two gloo processes cannot tell."""
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    job = capture(TRAINER, "fsdp", gpus="1x2xH100", steps=STEPS)
    layer = 4 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64)
    words = 4 * 64 * 204
    head = words + 4 * 64  # with the last norm
    whole = 3 * layer + words + head
    tensors = 3 * 9 + 3
    assert job.bytes["parameters"] == job.bytes["gradients"] == whole / 2
    assert job.bytes["optimizer_state"] == whole
    sent = Counter((c.phase, c.kind, c.n_bytes) for c in job.collectives)
    assert {k: n for k, n in sent.items() if k[1] != "all-gather" or k[2] > 100} == {
        ("forward", "all-gather", words): 2, ("forward", "all-gather", layer): 6,
        ("forward", "all-gather", head): 2, ("backward", "all-gather", layer): 6,
        ("backward", "all-gather", words): 2,
        ("backward", "reduce-scatter", layer): 3, ("backward", "reduce-scatter", words): 1,
        ("backward", "reduce-scatter", head): 1, ("between", "all-reduce", 4 * tensors): 1,
    }  # fmt: skip
    assert (job.options["strategy"], job.options["software"]) == ("zero3", "transformers")
