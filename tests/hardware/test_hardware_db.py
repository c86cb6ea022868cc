"""One contract over every record of ``hardware_db``, and spot checks against datasheets."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

from simcore.base.database import Database, fold_name
from simcore.base.figures import Record, Sourced
from simcore.base.units import GIB, GIGA, MEGA, MIB, TERA
from simcore.hardware.spec import GPUS, LINKS, NODES, GpuSpec, LinkSpec, NodeSpec, PeakName

DATABASES: dict[str, Database[GpuSpec] | Database[LinkSpec] | Database[NodeSpec]] = {
    "gpu": GPUS,
    "link": LINKS,
    "node": NODES,
}
ALL = [(kind, name) for kind, db in DATABASES.items() for name in db.names()]
GPU_NAMES = GPUS.names()
NODE_NAMES = NODES.names()

#: Vendor-fused parts that break the usual order of peaks, each with the reason in its record.
PEAK_ORDER_EXCEPTIONS = {
    ("Gaudi3", "fp16", "bf16"),  # fp16 at a quarter of bf16
    ("MI100", "bf16", "fp16"),  # bf16 at half of fp16
    # int8 is cut on Blackwell Ultra
    *((name, "int8", lower) for name in ("B300-SXM", "GB300") for lower in ("fp16", "bf16")),
    *((f"V100-{form}-{size}GB", "int8", "fp16") for form in ("SXM", "PCIE") for size in (16, 32)),
    *((f"V100-SXM3-32GB{power}", "int8", "fp16") for power in ("", "-H")),
    ("TITAN-V", "int8", "fp16"),  # Volta's int8 is DP4A on the CUDA cores
}
#: Devices whose makers publish no power.
WITHOUT_TDP = {
    *(f"TPU-{v}" for v in ("v4", "v5e", "v5p", "v6e", "v7x")), *(f"Trainium{n}" for n in (1, 2, 3)),
    "MI455X", "MTT-S5000",
}  # fmt: skip


@lru_cache
def index_of(kind: str) -> dict[str, Path]:
    return DATABASES[kind].index()


@lru_cache
def record(kind: str, name: str) -> Sourced:
    return DATABASES[kind][name]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_record_parses_and_every_figure_has_a_source(kind: str, name: str) -> None:
    entry = record(kind, name)
    figures = entry.figures()
    assert figures
    for key, figure in figures.items():
        citation = entry.sources[figure.source]
        assert len(citation) >= 15, f"{key}: {citation!r} cites nothing"


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_source_is_used(kind: str, name: str) -> None:
    entry = record(kind, name)
    used = {f.source for f in entry.figures().values()}
    if isinstance(entry, GpuSpec) and entry.pcie is not None:
        assert entry.pcie.source in entry.sources
        used.add(entry.pcie.source)
    assert set(entry.sources) == used


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_index_scan_agrees_with_the_parsed_names(kind: str, name: str) -> None:
    """The index reads the names lines without a YAML parser: it must see what the parser sees."""
    db = DATABASES[kind]
    entry, path, index = record(kind, name), db.files()[name], index_of(kind)
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"name: {entry.name}\naliases: [")
    folded = {fold_name(n) for n in (entry.name, *entry.aliases)}
    assert folded == {key for key, target in index.items() if target == path}
    assert entry.name == path.stem
    assert db[entry.name] is entry


@pytest.mark.parametrize("kind", DATABASES)
def test_names_and_aliases_are_unique(kind: str) -> None:
    owner: dict[str, str] = {}
    entries: list[Record] = list(DATABASES[kind].all())
    for entry in entries:
        folded = [fold_name(n) for n in (entry.name, *entry.aliases)]
        for key in set(folded):
            assert key not in owner, f"{key}: both {owner.get(key)} and {entry.name}"
            owner[key] = entry.name


def test_there_are_at_least_fifty_gpus() -> None:
    assert len(GPU_NAMES) >= 50


# ---------------------------------------------------------------------------------- devices


@pytest.mark.parametrize("name", GPU_NAMES)
def test_peaks_are_in_order(name: str) -> None:
    gpu = GPUS[name]
    rising: list[PeakName] = ["fp64", "tf32", "bf16", "fp8", "fp4"]
    also: list[tuple[PeakName, PeakName]] = [
        ("fp16", "bf16"), ("bf16", "fp16"), ("fp32", "fp16"), ("fp32", "tf32"), ("fp16", "int8"),
        ("bf16", "int8"), ("fp16", "fp16_acc16"), ("fp64", "fp32"), ("fp16", "fp8"),
        ("fp32", "fp32_matrix"), ("fp32_matrix", "fp16"),
    ]  # fmt: skip
    for lower, upper in [*pairwise(rising), *also]:
        low, high = gpu.peak(lower), gpu.peak(upper)
        if low is None or high is None or (name, upper, lower) in PEAK_ORDER_EXCEPTIONS:
            continue
        assert high >= low * (1 - 2e-3), f"{name}: {upper} {high:g} is below {lower} {low:g}"


def test_exceptions_to_the_order_are_still_needed() -> None:
    for name, upper, lower in PEAK_ORDER_EXCEPTIONS:
        peaks = {str(k): f.value for k, f in GPUS[name].peak_flop_per_s.items()}
        assert peaks[upper] < peaks[lower], (name, upper, lower)


@pytest.mark.parametrize("name", GPU_NAMES)
def test_figures_are_sane(name: str) -> None:
    gpu = GPUS[name]
    assert 6 * GIB <= gpu.memory_size.value <= 512 * GIB
    assert 100 * GIGA <= gpu.memory_bw.value <= 25_000 * GIGA  # HBM4: 22 TB/s
    fastest = max(f.value for f in gpu.peak_flop_per_s.values())
    # FLOP a byte that balance device memory: 17 on P100, 2000 on parts with fp4.
    assert 10 <= fastest / gpu.memory_bw.value <= 2500
    # 15 GFLOP/s a watt on Kepler and Pascal, 15 TFLOP/s a watt with fp4.
    if gpu.tdp is None:
        assert name in WITHOUT_TDP
    else:
        assert 50 <= gpu.tdp.value <= 2300
        assert 10 * GIGA <= fastest / gpu.tdp.value <= 20 * TERA
    if gpu.memory_visible is not None:
        assert 0.90 <= gpu.memory_visible.value / gpu.memory_size.value <= 1.0
        offered = gpu.memory_cuda or gpu.memory_visible
        assert gpu.usable_memory_bytes == offered.value
        # the driver keeps a quarter of a GiB (8 GiB cards) to one (280 GiB)
        kept = gpu.memory_visible.value - offered.value
        assert offered is gpu.memory_visible or 200 * MIB <= kept <= 1100 * MIB
    if gpu.l2_size is not None:
        assert 1 * MIB <= gpu.l2_size.value <= 512 * MIB
    if gpu.boost_clock is not None:
        assert 800 * MEGA <= gpu.boost_clock.value <= 3000 * MEGA
    if gpu.nvlink_bw is not None:
        assert 20 * GIGA <= gpu.nvlink_bw.value <= 1800 * GIGA
        assert gpu.nvlink_bw.value < gpu.memory_bw.value
    known = gpu.vendor in ("NVIDIA", "AMD") and name != "MI455X"  # its fp64 is unpublished
    assert ("fp64" in gpu.peak_flop_per_s) or not known


@pytest.mark.parametrize("name", GPU_NAMES)
def test_units_exist_only_where_the_architecture_has_them(name: str) -> None:
    gpu = GPUS[name]
    if gpu.architecture in ("Kepler", "Pascal", "Volta", "Turing"):
        assert not {"tf32", "bf16", "fp8", "fp4"} & set(gpu.peak_flop_per_s)
    if gpu.architecture in ("Ampere", "CDNA1", "CDNA2"):
        assert not {"fp8", "fp4"} & set(gpu.peak_flop_per_s)
    if gpu.architecture in ("Ada", "Hopper", "CDNA3"):
        assert "fp8" in gpu.peak_flop_per_s
        assert "fp4" not in gpu.peak_flop_per_s
    assert ("fp16_acc16" in gpu.peak_flop_per_s) == ("GeForce" in gpu.full_name) or (
        gpu.architecture == "Pascal"
    )


@pytest.mark.parametrize("name", GPU_NAMES)
def test_fp32_peak_follows_from_units_and_clock(name: str) -> None:
    """2 FLOP x lanes x SMs x boost clock; lanes an SM from the architecture whitepapers."""
    gpu = GPUS[name]
    lanes = {
        "Kepler": 192,
        "Volta": 64,
        "Turing": 64,
        "Ampere": 128,
        "Ada": 128,
        "CDNA1": 64,
        "GCN5": 64,
        "RDNA3": 128,
        "RDNA4": 128,
    }
    lanes |= {"Hopper": 128, "CDNA3": 128, "CDNA4": 128, "Blackwell": 128, "Xe2": 128}
    if gpu.architecture == "Ampere" and gpu.process_nm == 7:
        n_lanes = 64  # GA100
    elif gpu.architecture == "Pascal":
        n_lanes = 64 if name.startswith("P100") else 128
    elif gpu.architecture == "CDNA2":
        n_lanes = 64  # packed instructions would double it
    elif gpu.architecture in lanes:
        n_lanes = lanes[gpu.architecture]
    else:
        pytest.skip("vector lanes are not published")
    peak = gpu.peak("fp32")
    if gpu.sm_count is None or gpu.boost_clock is None or peak is None:
        pytest.skip("figures are missing")
    derived = 2 * n_lanes * gpu.sm_count.value * gpu.boost_clock.value
    # B200 and GB200 print rounded figures for a clock that is not published.
    slack = 0.15 if gpu.architecture == "Blackwell" and gpu.form_factor != "pcie" else 0.025
    if name in ("H20", "H20-141GB", "H800-SXM-80GB"):
        slack = 0.15  # clock and peak are quoted by different sources and do not meet
    assert peak == pytest.approx(derived, rel=slack)


@pytest.mark.parametrize("name", GPU_NAMES)
def test_peer_to_peer_fits_the_form(name: str) -> None:
    gpu = GPUS[name]
    if gpu.peer_to_peer == "nvlink":
        assert gpu.nvlink_bw is not None
        assert gpu.form_factor != "pcie"
    if gpu.form_factor in ("sxm", "oam"):
        assert gpu.peer_to_peer == "nvlink"
    if "GeForce" in gpu.full_name:
        assert gpu.peer_to_peer == "none"
    if gpu.form_factor == "pcie" and gpu.nvlink_bw is not None:
        assert "only in nodes whose fabric has it" in gpu.notes


TFLOP = TERA
#: Read off the vendors' datasheets: peaks in TFLOP/s, memory in GB/s and GiB, NVLink one way.
DATASHEET: dict[str, dict[str, float]] = {
    "A100-SXM-80GB": {"fp64": 9.7, "fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312,
                      "int8": 624, "bw": 2039, "gib": 80, "tdp": 400, "nvlink": 300, "sm": 108},
    "A100-PCIE-40GB": {"bf16": 312, "bw": 1555, "gib": 40, "tdp": 250, "sm": 108},
    "H100-SXM-80GB": {"fp64": 34, "fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp8": 1979,
                      "bw": 3350, "gib": 80, "tdp": 700, "nvlink": 450, "sm": 132},
    "H100-PCIE-80GB": {"fp32": 51, "bf16": 756.5, "fp8": 1513, "bw": 2000, "tdp": 350, "sm": 114},
    "H200-SXM": {"bf16": 989.5, "bw": 4800, "gib": 141, "nvlink": 450},
    "RTX4090": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "fp16_acc16": 330.3, "bf16": 165.2,
                "fp8": 330.3, "int8": 660.6, "bw": 1008, "gib": 24, "tdp": 450, "sm": 128},
    "RTX3090": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "fp16_acc16": 142, "bf16": 71,
                "int8": 284, "bw": 936, "gib": 24, "tdp": 350, "sm": 82},
    "RTX2080Ti": {"fp32": 13.4, "fp16": 53.8, "fp16_acc16": 107.6, "bw": 616, "gib": 11},
    "A6000ada": {"fp32": 91.1, "tf32": 182.1, "fp16": 364.2, "bw": 960, "gib": 48, "tdp": 300},
    "V100-SXM-32GB": {"fp64": 7.8, "fp32": 15.7, "fp16": 125, "bw": 900, "gib": 32, "tdp": 300,
                      "nvlink": 150, "sm": 80},
    "V100-PCIE-16GB": {"fp64": 7, "fp32": 14, "fp16": 112, "bw": 900, "gib": 16, "tdp": 250},
    "T4": {"fp32": 8.1, "fp16": 65, "int8": 130, "bw": 320, "gib": 16, "tdp": 70, "sm": 40},
    "L4": {"fp32": 30.3, "fp16": 121, "fp8": 242, "bw": 300, "gib": 24, "tdp": 72},
    "L40S": {"fp32": 91.6, "tf32": 183, "fp16": 362, "fp8": 733, "bw": 864, "tdp": 350},
    "A40": {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "int8": 299.3, "bw": 696, "gib": 48},
    "A30": {"fp32": 10.3, "tf32": 82, "fp16": 165, "int8": 330, "bw": 933, "gib": 24, "tdp": 165},
    "A10": {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250, "bw": 600, "tdp": 150},
    "A16": {"fp32": 4.5, "tf32": 9, "fp16": 17.9, "int8": 35.9, "bw": 200, "gib": 16},
    "A2": {"fp32": 4.5, "tf32": 9, "bf16": 18, "int8": 36, "bw": 200, "gib": 16, "tdp": 60},
    "RTX-5000-Ada": {"fp32": 65.3, "fp8": 522.2, "bw": 576, "gib": 32, "tdp": 250},
    "RTX5080": {"fp32": 56.3, "fp4": 900.5, "bw": 960, "gib": 16, "tdp": 360, "sm": 84},
    "RTX-A2000-12GB": {"fp32": 8, "fp16": 31.95, "bw": 288, "gib": 12, "tdp": 70},
    "MI300X": {"fp64": 81.7, "fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp8": 2614.9,
               "bw": 5300, "gib": 192, "tdp": 750, "nvlink": 448},
    "MTT-S4000": {"fp32": 25, "tf32": 50, "fp16": 100, "int8": 200, "bw": 768, "gib": 48},
    "H20": {"fp32": 44, "tf32": 74, "bf16": 148, "fp8": 296, "bw": 4000, "gib": 96},
}  # fmt: skip


@pytest.mark.parametrize("name", DATASHEET)
def test_spot_checks_against_datasheets(name: str) -> None:
    gpu = GPUS[name]
    got = {str(k): f.value / TFLOP for k, f in gpu.peak_flop_per_s.items()}
    got |= {"bw": gpu.memory_bw.value / GIGA, "gib": gpu.memory_size.value / GIB}
    got |= {"tdp": gpu.tdp.value}
    if gpu.nvlink_bw is not None:
        got["nvlink"] = gpu.nvlink_bw.value / GIGA
    if gpu.sm_count is not None:
        got["sm"] = gpu.sm_count.value
    for key, printed in DATASHEET[name].items():
        assert got[key] == pytest.approx(printed, rel=0.015), key


#: What nvidia-smi prints as total [MiB].
SMI_MIB = {
    "A100-SXM-80GB": 81920, "A100-SXM-40GB": 40960, "H100-SXM-80GB": 81559, "H200-SXM": 143771,
    "RTX4090": 24564, "RTX3090": 24576, "A6000ada": 49140, "L40S": 46068, "A40": 46068,
    "A6000": 49140, "L4": 23034, "A10": 23028, "T4": 15360, "A16": 15356, "A2": 15356,
    "B200-SXM": 183359, "GB200": 189471, "H20": 97871, "RTX2080Ti": 11264,
}  # fmt: skip


@pytest.mark.parametrize("name", SMI_MIB)
def test_visible_memory_is_what_the_driver_prints(name: str) -> None:
    visible = GPUS[name].memory_visible
    assert visible is not None and visible.value == SMI_MIB[name] * MIB


RESOLVES = {
    "A100": "A100-SXM-80GB", "A100-80GB": "A100-SXM-80GB", "A100-40GB": "A100-SXM-40GB",
    "A100 80GB PCIe": "A100-PCIE-80GB", "A100 80G PCIe": "A100-PCIE-80GB",
    "A100-PCIE": "A100-PCIE-80GB", "A800": "A800-SXM-80GB", "H100": "H100-SXM-80GB",
    "H800": "H800-SXM-80GB", "H200": "H200-SXM", "V100": "V100-SXM-32GB",
    "V100-16GB": "V100-PCIE-16GB", "V100-32GB": "V100-SXM-32GB", "V100 PCIe": "V100-PCIE-16GB",
    "4090": "RTX4090", "rtx 4090": "RTX4090", "3090": "RTX3090", "2080Ti": "RTX2080Ti",
    "A2000": "RTX-A2000-12GB", "a6000ada": "A6000ada", "RTX 6000 Ada": "A6000ada",
    "A6000": "A6000", "RTX A6000": "A6000", "S4000": "MTT-S4000", "T4": "T4", "A16": "A16",
    "TITAN V": "TITAN-V", "A30": "A30", "910B": "Ascend-910B", "TPU v4": "TPU-v4",
    "B200": "B200-SXM", "B300": "B300-SXM", "MI250": "MI250", "MI300X": "MI300X",
    "L20": "L20", "P4": "P4", "P100": "P100-PCIE-16GB",
    # as torch.cuda.get_device_name() has them
    "NVIDIA A100-SXM4-80GB": "A100-SXM-80GB", "NVIDIA A100-SXM4-40GB": "A100-SXM-40GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80GB", "NVIDIA A100-PCIE-40GB": "A100-PCIE-40GB",
    "NVIDIA A800-SXM4-80GB": "A800-SXM-80GB", "NVIDIA H100 80GB HBM3": "H100-SXM-80GB",
    "NVIDIA H100 PCIe": "H100-PCIE-80GB", "NVIDIA H200": "H200-SXM", "NVIDIA H20": "H20",
    "NVIDIA H800": "H800-SXM-80GB", "NVIDIA B200": "B200-SXM", "NVIDIA GB200": "GB200",
    "NVIDIA GeForce RTX 4090": "RTX4090", "NVIDIA GeForce RTX 3090": "RTX3090",
    "NVIDIA GeForce RTX 2080 Ti": "RTX2080Ti", "NVIDIA RTX 6000 Ada Generation": "A6000ada",
    "NVIDIA RTX A6000": "A6000", "NVIDIA RTX A2000 12GB": "RTX-A2000-12GB",
    "NVIDIA L40S": "L40S", "NVIDIA L4": "L4", "NVIDIA A10": "A10", "NVIDIA A10G": "A10G",
    "NVIDIA A16": "A16", "NVIDIA A30": "A30", "NVIDIA A40": "A40", "Tesla T4": "T4",
    "Tesla V100-SXM2-32GB": "V100-SXM-32GB", "Tesla V100-SXM2-16GB": "V100-SXM-16GB",
    "Tesla V100-PCIE-16GB": "V100-PCIE-16GB", "Tesla V100-PCIE-32GB": "V100-PCIE-32GB",
    "Tesla P100-PCIE-16GB": "P100-PCIE-16GB", "AMD Instinct MI210": "MI210",
    "AMD Instinct MI300X": "MI300X",
}  # fmt: skip


@pytest.mark.parametrize("name", RESOLVES)
def test_common_names_resolve(name: str) -> None:
    assert GPUS[name].name == RESOLVES[name]


# ------------------------------------------------------------------------------ links, nodes


@pytest.mark.parametrize("name", LINKS.names())
def test_links_are_sane(name: str) -> None:
    link = LINKS[name]
    assert 0.1 * GIGA <= link.bw.value <= 1000 * GIGA
    floor = 0.05 if link.kind in ("socket", "ethernet") else 0.75
    assert floor <= link.payload_frac.value <= 1
    assert 0.5e-6 <= link.latency.value <= 100e-6
    ladder = {"nvlink": 5e-6, "pcie": 10e-6, "infiniband": 20e-6, "roce": 30e-6}
    if link.kind in ladder:
        assert link.latency.value <= ladder[link.kind]
    if link.kind == "ethernet":
        assert link.latency.value >= LINKS["roce-100"].latency.value, "sockets cost more than RDMA"


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("pcie3-x16", 15.754), ("pcie4-x16", 31.508), ("pcie5-x16", 63.015), ("pcie4-x8", 15.754),
        ("nvlink1", 20), ("nvlink2", 25), ("nvlink3", 25), ("nvlink4", 25), ("nvlink5", 50),
        ("EDR", 12.5), ("HDR", 25), ("NDR", 50), ("XDR", 100), ("ib-100", 12.5), ("roce-400", 50),
        ("1GbE", 0.125), ("2.5GbE", 0.3125), ("10GbE", 1.25), ("25GbE", 3.125), ("100GbE", 12.5),
    ],
)  # fmt: skip
def test_link_rates(name: str, gb_per_s: float) -> None:
    """Line rates by lanes, transfer rate and coding: 16 GT/s x 16 x 128/130 / 8 = 31.508 GB/s."""
    assert LINKS[name].bw.value / GIGA == pytest.approx(gb_per_s, rel=1e-3)


def test_faster_generations_carry_more() -> None:
    for ladder in (
        ["pcie3-x16", "pcie4-x16", "pcie5-x16", "pcie6-x16"],
        ["ib-edr", "ib-hdr", "ib-ndr", "ib-xdr"],
        ["eth-1", "eth-2.5", "eth-5", "eth-10", "eth-25", "eth-40", "eth-50", "eth-100"],
    ):
        payload = [LINKS[n].bw.value * LINKS[n].payload_frac.value for n in ladder]
        assert payload == sorted(payload)
    assert LINKS["eth-10"].payload_frac.value == pytest.approx(1448 / 1538, abs=1e-4)


@pytest.mark.parametrize("name", NODE_NAMES)
def test_nodes_name_records_that_exist(name: str) -> None:
    node = NODES[name]
    links = LINKS.names()
    assert node.pcie_link in links
    assert LINKS[node.pcie_link].kind in ("pcie", "c2c")
    if node.socket_link is not None:
        assert node.socket_link in links
        assert LINKS[node.socket_link].kind == "socket"
        assert node.cpu.sockets > 1
    for nic in node.nics:
        assert nic.link in links
        assert LINKS[nic.link].kind in ("infiniband", "roce", "ethernet")
    for gpu in node.gpu_types:
        assert gpu in GPU_NAMES, f"{gpu} is not the name of a record"
        if node.fabric in ("nvswitch", "nvlink-mesh"):
            assert GPUS[gpu].nvlink_bw is not None or node.max_gpus == 1


@pytest.mark.parametrize("name", NODE_NAMES)
def test_nodes_are_sane(name: str) -> None:
    node = NODES[name]
    assert node.nics, "a node joins a network"
    assert 1 <= node.gpus_per_pcie_root <= node.max_gpus
    assert 40 * GIGA <= node.cpu.dram_bw_per_socket.value <= 1200 * GIGA
    assert 4 * GIB <= node.cpu.dram_size.value / node.max_gpus <= 2000 * GIB
    if node.nvme is not None:
        assert node.nvme.write_bw.value <= node.nvme.read_bw.value
    # presets are found by a scan of this line, see hardware.cluster
    text = NODES.files()[name].read_text(encoding="utf-8")
    line = re.search(r"^gpu_types: \[(.*)\]$", text, re.MULTILINE)
    assert line is not None
    assert tuple(filter(None, line[1].split(", "))) == node.gpu_types


def test_presets_that_others_rely_on() -> None:
    for name, gpu in (("8x4090-pcie", "RTX4090"), ("8xA6000ada-pcie", "A6000ada")):
        node = NODES[name]
        assert node.gpu_types == (gpu,)
        assert (node.max_gpus, node.cpu.sockets, node.cpu.cores_per_socket) == (8, 2, 48)
        # 8 channels of DDR4-3200: 8 x 3200 MT/s x 8 bytes
        assert node.cpu.dram_bw_per_socket.value == 204.8 * GIGA
        assert [(n.link, n.count) for n in node.nics] == [("ib-hdr", 1)]
        assert "assumption" in node.notes
    for name in ("generic-pcie", "generic-nvswitch", "workstation-2gpu", "a100-pcie-2gpu",
                 "server-pcie", "vm-2.5gbe", "8xS4000", "dgx-1", "dgx-2", "dgx-a100", "dgx-h100",
                 "dgx-b200", "gb200-nvl72", "mi300x-8oam"):  # fmt: skip
        assert NODES[name].name == name
    assert NODES["gb200-nvl72"].max_gpus == 72
    assert NODES["generic-pcie"].max_gpus == 16


@pytest.mark.parametrize(("name", "arrays"), [("TPU-v4", 8), ("TPU-v5e", 4), ("TPU-v5p", 8)])
def test_tpus_with_one_clock_reach_their_peak_at_it(name, arrays):
    """An array of 128 x 128 multiplies and adds at each of its cells every clock."""
    gpu = GPUS[name]
    assert gpu.sustained_clock.value == gpu.boost_clock.value
    counted = arrays * 128 * 128 * 2 * gpu.sustained_clock.value
    assert gpu.peak("bf16") == pytest.approx(counted, rel=3e-3)
