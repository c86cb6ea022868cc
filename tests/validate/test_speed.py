"""What a prediction of 10^12 parameters costs beside one of a single replica."""

from pathlib import Path

from costs import cost_ratio

from simcore.answer.predict import predict
from simcore.hardware.profile import load_profile
from simcore.request.resolved import Request
from simcore.validate.judge import request_of
from simcore.validate.table import read_table

#: The largest model of Narayanan et al. 2021, table 1, on 131,072 GPUs.
TRILLION = (
    "id,source,model,arch,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,moe_experts,"
    "moe_topk,moe_ffn,global_batch,micro_batch,gpus,gpu_type,gpus_per_node,"
    "inter_node_gbps_per_gpu,tp,pp,vpp,dp,cp,ep,sharding,recompute,precision,step_time_s,"
    "peak_mem_gib,quality,task,variant,flagged_anomaly\n"
    "a,x,gpt-1t,gpt,1008,128,25600,160,160,102400,51200,2048,,,,65536,1,131072,H100-SXM5-80GB,8,"
    "400,8,64,2,256,1,1,zero1,full,bf16,30.0,,A,pretrain,,\n"
)


def trillion(tmp_path: Path, gpus: int) -> Request:
    """The row on so many GPUs, in as many replicas of 512 as they hold, of equal batches."""
    path = tmp_path / f"{gpus}.csv"
    replicas = gpus // 512
    row = TRILLION.replace(",65536,1,131072,", f",{256 * replicas},1,{gpus},")
    path.write_text(row.replace(",8,64,2,256,", f",8,64,2,{replicas},"), encoding="utf-8")
    (case,) = read_table(path).cases
    return request_of(case, load_profile())


def test_cost_does_not_grow_with_the_gpus_of_a_pipeline(tmp_path: Path) -> None:
    """10^12 parameters on 131,072 GPUs in 8 x 64 ranks cost what one replica of 512 GPUs costs."""
    many, one = trillion(tmp_path, 131_072), trillion(tmp_path, 512)
    assert (many.cluster.n_gpus, one.cluster.n_gpus) == (131_072, 512)
    assert predict(many).n_params > 1e12
    assert cost_ratio(lambda: predict(one), lambda: predict(many)) < 2.0
