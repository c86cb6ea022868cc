"""Links from logs of nccl-tests: what is known goes in, and must come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nccl_logs import nccl_log

from simcore import api
from simcore.answer.alone import collective_alone_s
from simcore.base.errors import DataError, InvalidConfig, UsageError
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.timing.points import COLLECTIVE_BASE_S

SIZES = [2**k for k in range(12, 32)]
BUS, HOP, RAMP = 310e9, 1.1e-6, 0.8


def ring(n_bytes: float, rounds: float = 2.0, ranks: int = 8) -> float:
    """The engine's ring written out once more."""
    latency = COLLECTIVE_BASE_S + rounds * (ranks - 1) * HOP
    transfer = rounds * (ranks - 1) / ranks * n_bytes / BUS
    return float(latency + transfer + RAMP * (latency * transfer) ** 0.5)


def written(folder: Path, text: str, name: str = "log.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_ring_gives_back_its_bus_its_hop_and_its_ramp(tmp_path: Path) -> None:
    """5 % noise: each within two standard deviations, 19 times in 20 (of 40 draws at least 36)."""
    inside = np.zeros(3, dtype=int)
    for seed in range(40):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.05, len(SIZES)))
        times = dict(zip(SIZES, noise * [ring(s) for s in SIZES], strict=True))
        log = written(tmp_path, nccl_log(lambda s, t=times: t[s], SIZES))
        (link,) = api.calibrate_from(log)["links"]
        for i, (key, sd, true) in enumerate((
            ("bus_bytes_per_s", "bus_sd_log", BUS), ("hop_s", "hop_sd_log", HOP),
            ("ramp", "ramp_sd_log", RAMP),
        )):  # fmt: skip
            inside[i] += abs(np.log(link[key] / true)) <= 2 * max(link[sd], 0.02)
    assert min(inside) >= 36


def test_the_profile_predicts_the_log_and_nothing_but_links_has_changed(tmp_path: Path) -> None:
    log = written(tmp_path, nccl_log(ring, SIZES))
    target = tmp_path / "mine.yaml"
    found = api.calibrate_from(log, output=target)
    assert found["leave_one_out_mape_frac"] < 0.01
    judged = api.validate_ops([log], calibration=str(target))
    assert judged["runs"][0]["mape_frac"] < 0.01
    assert api.validate_ops([log])["runs"][0]["mape_frac"] > 0.05  # blind stays blind

    def step(gpus: str, calibration: str | None) -> float:
        return api.predict("gpt2", gpus, calibration=calibration).step_time_s.value

    assert step("1xH100", str(target)) == step("1xH100", None)
    assert step("8xH100", str(target)) != step("8xH100", None)


def test_gathered_parameters_take_one_round(tmp_path: Path) -> None:
    log = written(tmp_path, nccl_log(lambda s: ring(s, 1.0), SIZES, op="all_gather"))
    (link,) = api.calibrate_from(log)["links"]
    assert link["bus_bytes_per_s"] == pytest.approx(BUS, rel=0.01)
    assert link["hop_s"] == pytest.approx(HOP, rel=0.03)


def test_a_slow_network_is_told_by_large_messages(tmp_path: Path) -> None:
    """Two thirds of what is assumed of the NICs, through the engine's own all-reduce."""
    cluster, blind = parse_cluster("4x8xH100", network="4xib-hdr"), load_profile()

    def slow(n_bytes: int) -> float:
        sizes = np.array([float(n_bytes)])
        return float(collective_alone_s(cluster, blind, "all_reduce", sizes, inter=0.66)[0])

    log = written(tmp_path, nccl_log(slow, SIZES, hosts=4))
    found = api.calibrate_from(log, network="4xib-hdr", output=tmp_path / "net.yaml")
    (knob,) = found["knobs"]
    assert knob["knob"] == "inter" and knob["link"] == "ib-hdr"
    assert knob["value"] == pytest.approx(0.66, rel=0.01)
    assert knob["sd_log"] < knob["prior_sd_log"]
    judged = api.validate_ops(
        [log], network="4xib-hdr", calibration=str(tmp_path / "net.yaml")
    )["runs"][0]  # fmt: skip
    assert judged["large"]["mape_frac"] < 0.02


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (nccl_log(ring, SIZES, listed=False), {}, "say --gpus NODESxGPUSxTYPE"),
        (nccl_log(ring, SIZES, op="all_gather", named=False), {}, "say --collective NAME"),
        (nccl_log(ring, SIZES, gpu="NVIDIA Z9000"), {}, "say --gpus NODESxGPUSxTYPE"),
        (nccl_log(ring, SIZES), {"gpus": "1x4xH100"}, "has 4 GPUs, the run 8 ranks"),
        (nccl_log(ring, SIZES, listed=False), {"gpus": "4xH100"}, "another number of ranks"),
        (nccl_log(ring, SIZES), {"collective": "all_reducer"}, "did you mean 'all_reduce'"),
        (nccl_log(ring, SIZES, op="broadcast"), {}, "no run of log.txt determines a link"),
    ],
)
def test_what_a_log_leaves_out_is_asked_for(
    text: str, words: dict[str, str], said: str, tmp_path: Path
) -> None:
    log = written(tmp_path, text)
    with pytest.raises(UsageError, match=said):
        api.calibrate_from(log, **words)  # type: ignore[arg-type]


def test_what_is_asked_for_is_taken(tmp_path: Path) -> None:
    log = written(tmp_path, nccl_log(ring, SIZES, listed=False, named=False, op="all_gather"))
    found = api.validate_ops([log], gpus="8xH100", collective="all_gather")
    assert found["runs"][0]["collective"] == "all_gather"
    assert found["simulated"] == len(SIZES)


def test_bad_rows_are_refused_or_left_out_as_asked(tmp_path: Path) -> None:
    text = nccl_log(ring, SIZES).replace("    4096  ", "    4097  ", 1)  # no longer what algbw says
    wrong = text.replace("1073741824    ", " 134217728    ", 1)
    log = written(tmp_path, wrong)
    with pytest.raises(DataError, match=r"log.txt:\d+: .*columns shifted"):
        api.calibrate_from(log)
    found = api.calibrate_from(log, bad_rows="skip")
    assert found["rows"] == len(SIZES) - 1
    assert any("columns shifted" in why for why in found["skipped"])


EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def test_logs_from_the_field() -> None:
    """HGX H100 with 400 Gbit/s a GPU, by the author of NVIDIA/nccl-tests issue 309.

    Over four hosts, where rings and trees do the work, messages of gradients are predicted blind
    within 15 %; over two the switches add up, which tells nothing of the network.
    """
    four = api.validate_ops([EXAMPLES / "nccl-4x8xH100.txt"])
    assert four["runs"][0]["cluster"] == "4x8xH100-SXM-80GB" and not four["notes"]
    assert four["runs"][0]["large"]["mape_frac"] < 0.15
    (knob,) = api.calibrate_from(EXAMPLES / "nccl-4x8xH100.txt")["knobs"]
    assert abs(np.log(knob["value"])) < 2 * knob["sd_log"] < 2 * knob["prior_sd_log"]
    with pytest.raises(InvalidConfig, match="NVLink SHARP"):
        api.calibrate_from(EXAMPLES / "nccl-2x8xH100.txt")


def test_what_no_ring_can_be_is_said(tmp_path: Path) -> None:
    fast = written(tmp_path, nccl_log(lambda s: 25e-6 + s / 272e9, SIZES))  # 476 GB/s of bus
    assert "NVLink SHARP" in api.validate_ops([fast])["notes"][0]
    assert "NVLink SHARP" in api.calibrate_from(fast)["notes"][0]
    ring_only = written(tmp_path, nccl_log(ring, SIZES), "ring.txt")
    assert not api.validate_ops([ring_only])["notes"]


def test_logs_and_tables_are_asked_apart(tmp_path: Path) -> None:
    log = written(tmp_path, nccl_log(ring, SIZES))
    table = written(tmp_path, "gpu,op\nA100,add\n", "table.csv")
    with pytest.raises(InvalidConfig, match="use one command for each"):
        api.validate_ops([log, table])
    with pytest.raises(InvalidConfig, match="for logs of nccl-tests"):
        api.calibrate_from(table, gpus="8xH100")
