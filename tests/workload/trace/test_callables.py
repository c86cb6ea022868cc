"""``--model pkg.mod:callable``: from a user's file to a prediction, and every way to be wrong."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference import measure
from reference.nets import BY_NAME
from reference.resnet import ResNet

from simcore import api
from simcore.base.errors import InvalidConfig, UsageError
from simcore.cli.main import run
from simcore.workload import trace as tracing
from simcore.workload.archs.traced import read_ops
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import TrustedName
from simcore.workload.trace.convert import converted
from simcore.workload.trace.estimate import estimate_memory
from simcore.workload.trace.inputs import parse_input, parse_inputs
from simcore.workload.trace.tracer import trace

FILE = """
import torch
from torch import nn

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.out = nn.Linear(16, 4)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 64), nn.Linear(64, 16)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

class Rates(Mlp):
    def __init__(self):
        super().__init__()
        self.rates = [r.item() for r in torch.linspace(0, 0.1, 3)]

def build(): return Mlp()
def rates(): return Rates()
def sample(): return Mlp(), torch.zeros(5, 16)
def with_loss(): return Mlp(), (torch.zeros(5, 16),), lambda y: y.square().sum()
def half(): return Mlp().bfloat16(), torch.zeros(5, 16, dtype=torch.bfloat16)
def raises(): raise ValueError("no weights here")
def number(): return 3
def argument(width): return Mlp()

class Wrong(Mlp):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.layers[1].forward = self.wrong
    def wrong(self, x):
        if self.how == "item": return x if x.sum().item() > 0 else -x
        if self.how == "branch": return x if x.sum() > 0 else -x
        if self.how == "mask": return x[x > 0].sum() * x
        if self.how == "numpy": return x * float(x.detach().numpy()[0, 0])
        return x @ torch.zeros(3, 3)

def item(): return Wrong("item"), torch.zeros(5, 16)
def branch(): return Wrong("branch"), torch.zeros(5, 16)
def mask(): return Wrong("mask"), torch.zeros(5, 16)
def numpy(): return Wrong("numpy"), torch.zeros(5, 16)
def shape(): return Wrong("shape"), torch.zeros(5, 16)
def sparse():
    return nn.Sequential(nn.Embedding(9, 4, sparse=True)), torch.zeros(2, 3, dtype=torch.long)
def lazy(): return nn.Sequential(nn.LazyLinear(3)), torch.zeros(2, 3)
"""
INPUTS = ("float32[B,16]",)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's folder with one file of models; the name of its module."""
    name = f"net_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name  # type: ignore[misc]
    sys.modules.pop(name, None)


# -- inputs ----------------------------------------------------------------------------------------


def test_input_grammar() -> None:
    shape = parse_input("float32[B, 3,224,224]")
    assert shape.dtype == "float32" and shape.at(7) == (7, 3, 224, 224)
    assert str(shape) == "float32[B,3,224,224]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("float32", "is not DTYPE"), ("float33[B,3]", "did you mean 'float32'"),
        ("int64[B,x]", "'x' is neither"), ("int64[B,0]", "'0' is neither"),
        ("int64[]", "'' is neither"), ("int64[4,5]", "no shape has the batch"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_inputs((text,))


def _record_of(text: str, inputs: tuple[str, ...] = ()) -> ModelRecord:
    """The record of a callable whose name somebody typed."""
    return tracing.trace_callable(TrustedName(text), inputs)


# -- from a callable to a prediction ---------------------------------------------------------------


@pytest.mark.parametrize("attribute", ["build", "rates", "sample", "with_loss"])
def test_every_form_of_a_callable(net: str, attribute: str) -> None:
    given = () if attribute in ("sample", "with_loss") else INPUTS
    record = _record_of(f"{net}:{attribute}", given)
    workload = record.build()
    per_layer = 16 * 64 + 64 + 64 * 16 + 16
    assert workload.trainable_numel == record.params.value == 3 * per_layer + 16 * 4 + 4
    assert workload.forward_flop == 3 * 2 * 2 * 16 * 64 + 2 * 16 * 4
    assert len(workload.order) == 4 and workload.order[:3] == (0, 1, 1)


def test_a_prediction_answers_to_precision(net: str) -> None:
    # so large that kernels, not their launches, take the time
    options = {"inputs": INPUTS, "micro_batch": 1 << 19}
    found = {
        p: api.predict(f"{net}:build", "8xA100-SXM-80GB", precision=p, **options)
        for p in ("fp32", "tf32", "amp-bf16", "bf16")
    }
    times = [found[p].step_time_s.value for p in found]
    assert all(0 < t < 1 for t in times) and times == sorted(times, reverse=True)
    held = {p: f.memory.terms["activations"] for p, f in found.items()}
    assert held["fp32"] > held["amp-bf16"] >= held["bf16"] > 0


def test_a_module_in_bf16_trains_in_bf16(net: str) -> None:
    record = _record_of(f"{net}:half")
    assert record.training.precision == "bf16"
    saved = record.build().saved
    assert saved.low == saved.high == 0 and saved.raw_bytes > 0


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ("item", r"layers\.1 reads the value of a tensor .*\(.*\.py:\d+\), which cannot be traced"),
        ("branch", r"layers\.1 reads the value of a tensor"),
        ("mask", r"layers\.1 makes a tensor whose shape depends on data"),
        ("numpy", r"layers\.1 leaves torch"),
        ("sparse", r"0 has sparse gradients.*sparse=False"),
        ("lazy", r"has no shape yet"),
        ("shape", r"RuntimeError: .*\.py:\d+"),
        ("raises", r"ValueError: no weights here \(.*\.py:\d+\)"),
        ("number", "returned int"),
        ("argument", r"needs arguments \(width\)"),
        ("buld", "has no 'buld': did you mean 'build'"),
        ("build", "needs its inputs: --input"),
    ],
)
def test_what_cannot_be_traced_is_one_sentence(net: str, attribute: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        _record_of(f"{net}:{attribute}")
    assert "\n" not in str(caught.value) and "simcore" not in str(caught.value)


def test_shapes_that_do_not_match_are_not_logged_as_well(
    net: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError):
        _record_of(f"{net}:shape")
    assert not caplog.records and capfd.readouterr().err == ""


def test_modules_that_cannot_be_imported(net: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no module 'nowhere' here"):
        _record_of("nowhere.net:build")
    (tmp_path / "broken_file.py").write_text("import nothing_like_this\n")
    with pytest.raises(
        UsageError, match=r"ModuleNotFoundError.*nothing_like_this.*broken_file.py:1"
    ):
        _record_of("broken_file:build")
    (tmp_path / "bad_syntax.py").write_text("def build(:\n")
    with pytest.raises(UsageError, match="SyntaxError"):
        _record_of("bad_syntax:build")


def test_input_belongs_to_a_callable() -> None:
    with pytest.raises(InvalidConfig, match="--input is for a model given as"):
        api.predict("bert-base", "A100-SXM-80GB", inputs=("int64[B,8]",))


# -- the cache -------------------------------------------------------------------------------------


def test_the_second_time_comes_from_the_cache(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _record_of(f"{net}:build", INPUTS)
    traced = []
    plain = tracing._trace
    monkeypatch.setattr(tracing, "_trace", lambda *a: traced.append(a) or plain(*a))
    again = _record_of(f"{net}:build", INPUTS)
    assert not traced and again.model_dump() == first.model_dump()
    _record_of(f"{net}:build", ("float32[B,2,16]",))
    assert len(traced) == 1  # other inputs, another entry
    source = tmp_path / f"{net}.py"
    source.write_text(source.read_text() + "\nchanged = True\n")
    _record_of(f"{net}:build", INPUTS)
    assert len(traced) == 2  # the file changed
    for entry in (tmp_path / "cache").glob("*.json"):
        entry.write_text("{")
    _record_of(f"{net}:build", INPUTS)
    assert len(traced) == 3  # a damaged entry is no entry
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", "off")
    _record_of(f"{net}:build", INPUTS)
    assert len(traced) == 4


def _weights(text: str) -> float:
    """Parameters of a callable of layers of 16 x 16 without a bias, in layers."""
    return _record_of(text, INPUTS).params.value / 256


def _layers(n: int) -> str:
    """A file whose callable builds ``n`` layers, by a constant of the file."""
    return (
        f"from torch import nn\nN = {n}\n"
        "def build(): return nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(N)))\n"
    )


def test_a_notebook_s_callable_is_what_it_is_now(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells have no file: neither a function defined again nor a variable may be missed."""
    cells = sys.modules["__main__"]
    for n in (2, 5):  # the second cell that defines it
        exec(_layers(n), found := {})  # type: ignore[var-annotated]
        monkeypatch.setattr(cells, "net_of_a_cell", found["build"], raising=False)
        assert _weights("__main__:net_of_a_cell") == n
    found["N"] = 7
    assert _weights("__main__:net_of_a_cell") == 7
    monkeypatch.delattr(cells, "net_of_a_cell")  # a worker's __main__ is another
    assert _weights("__main__:net_of_a_cell") == 7


def test_a_file_edited_in_between_is_read_anew(net: str, tmp_path: Path) -> None:
    file = tmp_path / f"{net}.py"
    for n in (2, 10, 100):  # of unequal size, which Python tells files of one second apart by
        file.write_text(_layers(n))
        assert _weights(f"{net}:build") == n


def test_what_the_program_imported_is_never_kept_as_what_the_file_says(
    net: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{net}.py"
    file.write_text(_layers(2))
    sys.path.insert(0, str(tmp_path))
    importlib.import_module(net)
    file.write_text(_layers(10))
    assert _weights(f"{net}:build") == 2  # as Python itself would run it
    sys.modules[net].N = 3  # type: ignore[attr-defined]
    assert _weights(f"{net}:build") == 3
    del sys.modules[net]  # another process
    importlib.invalidate_caches()
    assert _weights(f"{net}:build") == 10


def test_one_question_calls_a_callable_once(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    exec(_layers(1), found := {})  # type: ignore[var-annotated]
    cells = sys.modules["__main__"]
    monkeypatch.setattr(
        cells, "counted", lambda: (calls.append(1), found["build"]())[1], raising=False
    )
    words = {"inputs": list(INPUTS)}
    api.predict("__main__:counted", "1xA100", **words)  # type: ignore[arg-type]
    once = len(calls)
    api.scaling("__main__:counted", "4xA100", **words)  # type: ignore[arg-type]
    assert once > 0 and len(calls) == 2 * once
    api.compare("__main__:counted", ["1xA100", "2xA100"], **words)
    assert len(calls) == 3 * once


def test_a_cached_model_and_a_model_file_need_no_torch(net: str, tmp_path: Path) -> None:
    assert run(["trace-model", f"{net}:build", "--input", *INPUTS, "-o", "mine.yaml"]) == 0
    code = (
        "import sys, simcore\n"
        "a = simcore.predict('mine.yaml', '8xA100-SXM-80GB')\n"
        f"b = simcore.predict('{net}:build', '8xA100-SXM-80GB', inputs=('{INPUTS[0]}',))\n"
        "assert a.step_time_s == b.step_time_s and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


# -- files -----------------------------------------------------------------------------------------


def test_a_model_file_says_what_the_trace_said(
    net: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace-model", f"{net}:build", "--input", *INPUTS, "-o", "mine.yaml"]) == 0
    record = resolve_model("mine.yaml")
    assert record.name == "mine"
    ours, theirs = record.build(), _record_of(f"{net}:build", INPUTS).build()
    assert ours.blocks == theirs.blocks and ours.order == theirs.order
    assert (ours.input_bytes, ours.n_buffers) == (theirs.input_bytes, theirs.n_buffers)
    assert run(["trace-model", f"{net}:build", "--input", *INPUTS, "-o", "mine.txt"]) == 2
    assert "must end in .yaml" in capfd.readouterr().err


def test_a_damaged_line_is_named(net: str, tmp_path: Path) -> None:
    assert run(["trace-model", f"{net}:build", "--input", *INPUTS, "-o", "mine.yaml"]) == 0
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("> gemm flop", "> gem flop", 1))
    with pytest.raises(InvalidConfig, match="line 3: 'gem' is no kind of kernel"):
        resolve_model("mine.yaml").build()
    (tmp_path / "mine.yaml").write_text(text.replace("  order:", "  ordr:", 1))
    with pytest.raises(InvalidConfig, match=r"traced\.order: Field required"):
        resolve_model("mine.yaml").build()
    with pytest.raises(ValueError, match="line 1"):
        read_ops("  > gemm flop=1\n")


def test_resnet_50_comes_back_from_its_file(tmp_path: Path) -> None:
    from simcore.workload.archs.traced import traced_part
    from simcore.workload.trace.yamlout import yaml_text

    with torch.device("meta"):
        model = ResNet((3, 4, 6, 3), True, 1000)
    one, two = (trace(model, (torch.zeros(b, 3, 224, 224, device="meta"),)) for b in (2, 3))
    workload, _ = converted(
        (one, two), (2, 3), name="r", sample_unit="image", tokens_per_sample=0.0
    )
    data = {
        "full_name": "r", "arch": "traced", "sample_unit": "image",
        "params": {"value": 25557032.0, "source": "t"}, "sources": {"t": "t"},
        "training": {"micro_batch": 1, "precision": "fp32", "optimizer": "sgd", "source": "t"},
        "traced": traced_part(workload),
    }  # fmt: skip
    (tmp_path / "r.yaml").write_text(yaml_text(data, "r"))
    built = resolve_model(str(tmp_path / "r.yaml")).build()
    assert built.trainable_numel == 25_557_032 and built.blocks == workload.blocks


# -- the cost of a trace ---------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read in /proc")
def test_a_24_layer_transformer_is_traced_in_little_memory(tmp_path: Path) -> None:
    """Half a GB with torch itself: its weights alone are 1.4 GB."""
    root = Path(__file__).parents[2]
    code = (
        "import re, sys, torch\n"
        f"sys.path[:0] = [{str(root)!r}, {str(root / 'workload')!r}, {str(root.parent)!r}]\n"
        "from reference.transformer import Gpt2\n"
        "from simcore.workload.trace.callables import Built, traced_workload\n"
        "with torch.device('meta'):\n"
        "    model = Gpt2(24, 1024, 16, p=0.0)\n"
        "ids = torch.zeros(2, 1024, dtype=torch.long, device='meta')\n"
        "w = traced_workload(Built(model, (ids,), None), (), 'gpt')\n"
        # getrusage would tell the peak of the process that started this one
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "assert w.trainable_numel == 354_823_168, w.trainable_numel\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 500_000  # KiB


# -- estimate_memory -------------------------------------------------------------------------------


def test_estimate_memory_of_a_real_module() -> None:
    net = BY_NAME["gpt2"]
    model, inputs = net.make(), net.inputs(4)
    n = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    found = estimate_memory(model, inputs, optimizer, attention="native")
    assert found.parameters_bytes == found.gradients_bytes == 4 * n
    model(*inputs).mean().backward()
    optimizer.step()
    state = sum(
        t.numel() * 4 for s in optimizer.state.values() for k, t in s.items() if k != "step"
    )
    assert found.optimizer_state_bytes == state
    assert found.inputs_bytes == 4 * 16 * 8
    truth = measure.saved_bytes(model, lambda: model(*inputs).mean()) - found.inputs_bytes
    logits = 4 * 16 * 60 * 4
    assert found.activations_bytes == pytest.approx(truth + logits, rel=1e-3)
    assert found.peak_bytes >= found.parameters_bytes + found.optimizer_state_bytes
    assert "peak" in str(found)


def test_named_inputs_are_given_by_name() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(512, 256)

        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            return self.layer(x if scale is None else x * scale)

    model, x = Named(), torch.zeros(2, 512)
    assert estimate_memory(model, {"x": x}) == estimate_memory(model, x)
    scaled = estimate_memory(model, {"scale": x, "x": x})
    assert scaled == estimate_memory(model, (x, x))
    with pytest.raises(UsageError, match="unexpected keyword argument 'y'"):
        estimate_memory(model, {"y": x})


@pytest.mark.parametrize(
    ("optimizer", "per_parameter"),
    [("sgd", 4), ("adam", 8), ("sgd-plain", 0), (torch.optim.SGD, 0), (torch.optim.Adam, 8)],
)
def test_optimizer_states(optimizer: object, per_parameter: int) -> None:
    net = BY_NAME["stack"]
    model = net.make()
    found = estimate_memory(model, net.inputs(2), optimizer)
    n = sum(p.numel() for p in model.parameters())
    assert found.optimizer_state_bytes == per_parameter * n


def test_optimizers_by_formula() -> None:
    model = torch.nn.Linear(512, 256)
    x = torch.zeros(2, 512)

    def state(name: str) -> int:
        return estimate_memory(model, x, name).optimizer_state_bytes

    assert state("adafactor") == 4 * (512 + 256 + 256)
    assert state("muon") == 4 * (512 * 256 + 2 * 256)
    assert state("adamw8bit") == 2 * 512 * 256 + 8 * (512 * 256 // 256) + 8 * 256
    with pytest.raises(UsageError, match="did you mean 'adafactor'"):
        state("adafactr")


@pytest.mark.parametrize("file", ["net.py", "./net.py"])
def test_a_file_is_told_from_a_module(file: str) -> None:
    with pytest.raises(UsageError, match="did you mean net:build"):
        _record_of(f"{file}:build")
