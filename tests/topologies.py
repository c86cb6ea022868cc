"""Matrices of real machines as their owners printed them.

dgx1: eight V100-SXM2 in Oneflow-Inc/DLPerf; dgx_a100: NVIDIA/nccl issue 1505 (rows of the NICs and
of GPU5 to GPU7 by its symmetry); h100: volcengine/verl environments with eight NICs; a6000: four
cards bridged in pairs (modular/modular), NV4; polaris: argonne-lcf/GettingStarted; rtx4090:
NVIDIA/go-gpuallocator issue 17.
"""

DGX1 = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  CPU Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     NODE    0-11,24-35
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     NODE    0-11,24-35
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PIX     0-11,24-35
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PIX     0-11,24-35
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     12-23,36-47
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     12-23,36-47
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     12-23,36-47
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     12-23,36-47
mlx5_0  NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""

POLARIS = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV4\tNV4\tNV4\tSYS\tSYS\t24-31,56-63\t3
GPU1\tNV4\t X \tNV4\tNV4\tSYS\tPHB\t16-23,48-55\t2
GPU2\tNV4\tNV4\t X \tNV4\tSYS\tSYS\t8-15,40-47\t1
GPU3\tNV4\tNV4\tNV4\t X \tPHB\tSYS\t0-7,32-39\t0
mlx5_0\tSYS\tSYS\tSYS\tPHB\t X \tSYS\t\t
mlx5_1\tSYS\tPHB\tSYS\tSYS\tSYS\t X \t\t
"""

A6000 = """\
GPU 0: NVIDIA RTX A6000 (UUID: GPU-0)
GPU 1: NVIDIA RTX A6000 (UUID: GPU-1)
GPU 2: NVIDIA RTX A6000 (UUID: GPU-2)
GPU 3: NVIDIA RTX A6000 (UUID: GPU-3)
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV4     SYS     SYS     SYS     0-23,48-71      0               N/A
GPU1    NV4      X      SYS     SYS     SYS     0-23,48-71      0               N/A
GPU2    SYS     SYS      X      NV4     PXB     24-47,72-95     1               N/A
GPU3    SYS     SYS     NV4      X      PIX     24-47,72-95     1               N/A
NIC0    SYS     SYS     PXB     PIX      X

NIC Legend:

  NIC0: mlx5_0
"""

RTX4090 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tSYS\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU3\tSYS\tSYS\tSYS\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU4\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tSYS\tSYS\tSYS\tSYS\t56-111,168-223\t1\t\tN/A
GPU5\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tSYS\tSYS\tSYS\t56-111,168-223\t1\t\tN/A
GPU6\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tPHB\tPHB\t56-111,168-223\t1\t\tN/A
GPU7\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tSYS\t56-111,168-223\t1\t\tN/A
NIC0\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPHB\tSYS\t X \tPIX
NIC1\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPHB\tSYS\tPIX\t X
"""

#: ``topo -mp`` of a server with two cards behind each switch.
PCIE_ONLY = """\
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      PXB     SYS     SYS     NODE    0-23,96-119     0
GPU1    PXB      X      SYS     SYS     NODE    0-23,96-119     0
GPU2    SYS     SYS      X      PXB     SYS     72-95,168-191   3
GPU3    SYS     SYS     PXB      X      SYS     72-95,168-191   3
mlx5_0  NODE    NODE    SYS     SYS      X
"""


def switched(links: int, gpus: int = 8, nics: int = 8, far_nics: int = 0, shared: int = 1) -> str:
    """An NVSwitch node: ``shared`` GPUs at a PCIe switch, each switch with as many NICs."""
    total = nics + far_nics
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(total)]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]

    def path(i: int, k: int) -> str:
        if k >= nics:
            return "SYS"
        if i // shared == k * gpus // nics // shared:
            return "PXB" if shared > 1 else "PIX"
        return "NODE" if (i < gpus // 2) == (k < nics // 2) else "SYS"

    for i in range(gpus):
        cells = ["X" if i == j else f"NV{links}" for j in range(gpus)]
        cells += [path(i, k) for k in range(total)]
        half = i // (gpus // 2)
        lines.append("\t".join([f"GPU{i}", *cells, ("0-55,112-167", "56-111,168-223")[half],
                                str(half), "", "N/A"]))  # fmt: skip
    for k in range(total):
        cells = [path(i, k) for i in range(gpus)] + ["X" if k == j else "SYS" for j in range(total)]
        lines.append("\t".join([f"NIC{k}", *cells]))
    return "\n".join(lines) + "\n"
