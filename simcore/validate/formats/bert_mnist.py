"""BERT and MNIST runs with torchrun: seconds of a whole run by cluster.

What the runs have in common and the source does not say is assumed here, once, and reported:
MNIST is the PyTorch example (14 epochs of 60,000 images, 10,000 tested after each); how many
sequences BERT was trained on is unknown, so that only ratios of its times can be predicted blind.
"""

from __future__ import annotations

from simcore.engine.options import Options
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present

MODELS = {"bert": "bert-base", "mnist": "mnist-cnn"}
#: The interfaces named are on-board ports of servers ("eno1", "bond0"): 10 GbE is assumed.
NETWORK = "eth-10"
#: Both hosts' A100 are PCIe cards in the seeds' nvidia-smi listing; V100 likewise taken as PCIe.
CARDS = {"A100": "A100-PCIE-80GB", "V100": "V100-PCIE-32GB"}
EPOCHS, TRAIN_IMAGES, TEST_IMAGES = 14, 60_000, 10_000
#: A round number of sequences that stands for one unit of unknown work.
BERT_SEQUENCES = 100_000


def _read(name: str, row: Row) -> Case | Skipped:
    task = row["task"]
    if task not in MODELS:
        return Skipped(name, f"unknown task {task!r}")
    groups = []
    for part in row["cluster"].split("+"):
        nodes, gpus, card = part.split("x", 2)
        groups.append(f"{nodes}x{gpus}x{CARDS.get(card, card)}")
    options: Options = {"strategy": "ddp"}
    if len(groups) > 1:
        options["network"] = NETWORK
    mnist = task == "mnist"
    return Case(
        id=name,
        table=task,
        model=MODELS[task],
        gpus="+".join(groups),
        options=options,
        measured=present(run_time_s=number(row, "total_s")),
        columns=row,
        train_samples=float(EPOCHS * TRAIN_IMAGES if mnist else BERT_SEQUENCES),
        eval_samples=float(EPOCHS * TEST_IMAGES) if mnist else 0.0,
        work_known=mnist,
        notes=row.get("note", ""),
    )


FORMAT = Format("bert-mnist", frozenset({"task", "cluster", "total_s"}), _read)
