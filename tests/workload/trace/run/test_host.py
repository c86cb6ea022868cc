"""Whole numbers that the host knows have values in a dry run; what a GPU computes has none."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from setups import SETUPS, VOCABULARY, tokens, train  # noqa: E402
from torch import nn  # noqa: E402

import simcore  # noqa: E402
from simcore.base.errors import UsageError  # noqa: E402


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What a script of four ranks reads, in one dry run."""
    read: dict[str, Any] = {}
    with simcore.dry_run("1x4xH100") as job:
        read["seed"] = int(torch.empty((), dtype=torch.int64).random_().item())
        read["order"] = torch.randperm(9, generator=torch.Generator().manual_seed(3)).tolist()
        state = torch.get_rng_state()[:8].to("cuda")  # a real tensor
        dist.broadcast(state, 0)
        read["state"] = state.cpu().view(torch.uint64).item()

        n = torch.tensor([3, 5])
        everybody = torch.empty(8, dtype=torch.int64, device="cuda")
        dist.all_gather_into_tensor(everybody, n)
        read["gathered"] = everybody.tolist()
        dist.all_reduce(n)
        read["summed"] = n.tolist()
        dist.all_reduce(n, op=dist.ReduceOp.MAX)
        read["largest"] = n.tolist()

        mask = torch.arange(6) < 4
        read["chosen"] = tuple(torch.randn(6, 2, device="cuda")[mask].shape)
        weights = nn.init.trunc_normal_(torch.empty(3, 3), a=-0.1, b=0.1)
        read["copied"] = copy.deepcopy({"of": weights, "the same": weights, "n": torch.tensor([7])})
        SETUPS["ddp"]()()
    read["job"] = job
    return read


def test_seeds_orders_and_states_are_those_of_the_processor(seen: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    assert seen["order"] == torch.randperm(9, generator=generator).tolist()
    assert seen["seed"] > 0
    assert seen["state"] == torch.get_rng_state()[:8].view(torch.uint64).item()


def test_other_ranks_have_the_numbers_of_this_one(seen: dict[str, Any]) -> None:
    assert seen["gathered"] == [3, 5] * 4
    assert seen["summed"] == seen["largest"] == [12, 20]


def test_masks_of_the_host_choose_a_known_number_of_rows(seen: dict[str, Any]) -> None:
    assert seen["chosen"] == (4, 2)


def test_a_tensor_is_copied_once(seen: dict[str, Any]) -> None:
    copied, again, number = seen["copied"].values()
    assert number.tolist() == [7]
    assert copied is again
    assert tuple(copied.shape) == (3, 3)


@pytest.mark.parametrize(
    "reads",
    [
        lambda: torch.randint(9, (4,), device="cuda").sum().item(),
        lambda: int(torch.randn(4).argmax()),
        lambda: torch.empty(4, device="cuda", dtype=torch.int64).random_().tolist(),
    ],
)
def test_numbers_that_a_gpu_draws_or_computes_are_refused(reads: Any) -> None:
    with pytest.raises(UsageError, match=r"reads a torch\.int64"), simcore.dry_run("1xH100"):
        reads()


def test_a_step_whose_optimizer_calls_forward_and_backward() -> None:
    """As Lightning trains: the whole step is the closure of the optimizer's."""
    plain, within = [], []
    for jobs, in_closure in ((plain, False), (within, True)):
        with simcore.dry_run("1x2xH100") as job:
            step = train(nn.parallel.DistributedDataParallel(SETUPS["single"]().model))
            if not in_closure:
                step()
                step()
            else:
                optimizer = step.optimizer

                def closure(model: Any = step.model, optimizer: Any = optimizer) -> Any:
                    x, y = tokens()
                    logits = model(x).view(-1, VOCABULARY)
                    loss = nn.functional.cross_entropy(logits, y.view(-1))
                    optimizer.zero_grad()
                    loss.backward()
                    return loss

                optimizer.step(closure)
                optimizer.step(closure=closure)
        jobs.append(job)
    (one,), (other,) = plain, within
    for term in ("parameters", "gradients", "optimizer_state"):
        assert one.bytes[term] == other.bytes[term]
    assert [c[:2] for c in one.collectives] == [c[:2] for c in other.collectives]
    assert one.options == other.options
    assert one.predict().step_time_s.value == other.predict().step_time_s.value
