"""Wrong records of networks: one sentence with file, line and the nearest key; own networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simcore.base.database import shipped_root
from simcore.base.errors import DataError
from simcore.cli.main import run
from simcore.workload.archs import body_layers as _body_layers
from simcore.workload.archs.check_layers import check_network
from simcore.workload.archs.layers import MAKERS
from simcore.workload.resolve import resolve_model

_FOLDER = shipped_root() / "models_db" / "architectures"

RIGHT = """\
settings:
  width: 16
  image: 32
values:
  wider: =2 * width
tape: {nchw: true}
parts:
  double:
    - conv: {name: a, channels: =size, kernel: 3}
    - act: {name: a, kind: relu}
input: {channels: 3, grid: [=image, =image]}
features:
  - double: {size: =width}
  - op: {name: o, forward: [copy: {low: =2 * x.elems}], saved: {low: =x.elems}}
  - repeat:
      rows: [[8, 1], [=wider, 2]]
      columns: [size, stride]
      layers:
        - conv: {name: b$stage, channels: =size, kernel: 3, stride: =stride}
  - mean: {name: pool}
  - block: {name: all}
  - linear: {name: classifier, features: 10}
  - loss: {}
  - block: {name: head}
"""


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """``ran("--set", …)``: exit code and errors of a prediction of the folder's own network."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        net = f"arch:{tmp_path.name}"  # a record is read once a process: each test has its own
        code = run(["predict", "--model", net, "--gpus", "1xA100", *words])
        return code, capfd.readouterr().err

    return call


def _written(folder: Path, text: str, name: str = "") -> Path:
    path = folder / "models_db" / "architectures" / f"{name or folder.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_records_that_ship_are_right(path: Path) -> None:
    check_network(path, MAKERS)


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("tape: {nchw", "tape: {nhcw", 6, "unknown key 'nhcw': did you mean 'nchw'?"),
        ("\nvalues:", "\nvalue:", 4, "unknown key 'value': did you mean 'values'?"),
        ("settings:", "setings:", 1, "unknown key 'setings': did you mean 'settings'?"),
        ("- mean:", "- maen:", 20, "unknown kind of layer 'maen': did you mean 'mean'?"),
        ("- double: {", "- dobule: {", 13, "unknown kind of layer 'dobule': did you mean 'double'"),
        ("channels: =size, kernel: 3}", "chanels: 8, kernel: 3}", 9,
         "unknown argument 'chanels': did you mean 'channels'?"),
        (", features: 10", "", 22, "argument 'features' is missing"),
        ("=2 * width", "=2 * widht", 5, "unknown name 'widht': did you mean 'width'?"),
        ("b$stage", "b$stag", 19, "unknown name 'stag': did you mean 'stage'?"),
        ("=2 * width", "=2 * * width", 5, "'2 * * width' is no formula"),
        ("=2 * width", "=width @ 2", 5, "'width @ 2' is nothing that a formula may have"),
        ("copy: {low", "copi: {low", 14, "unknown kind of kernel 'copi': did you mean 'copy'?"),
        ("copy: {low", "copy: {lw", 14, "unknown amount 'lw': did you mean 'low'?"),
        ("saved: {low", "saved: {hgih", 14, "unknown key 'hgih': did you mean 'high'?"),
        ("mean: {name: pool}", "mean: pool", 20, "arguments must be a mapping"),
        ("- mean: {name: pool}", "- {mean: {name: p}, act: {name: p, kind: relu}}", 20,
         "must be one kind with its arguments"),
        ("channels: 3, grid", "grid", 11, "key 'channels' is missing"),
        ("  - double: {size", "  - network: {record: resnt, depth", 13,
         "unknown network 'resnt': did you mean 'resnet'?"),
        ("settings:", "with: difusion\nsettings:", 1,
         "unknown network 'difusion': did you mean 'diffusion'?"),
        # what only shows as the network is built
        ("[[8, 1], ", "[[8], ", 15, "row 1 has 1 values for ['size', 'stride']"),
        ("channels: =size, kernel: 3}", "channels: '=[size]', kernel: 3}", 9, "list"),
        ("  - block: {name: head}\n", "", 12, "the layers after its last block have none"),
        ("=2 * width", "=width[0]", 5, "not subscriptable"),
        ("  - mean: {name: pool}", "  - mean: {name: pool, from: =width}", 20, "no attribute"),
        ("  - double: {size: =width}", "  - double: {}", 9, "nothing gives 'size' a value here"),
    ],
)  # fmt: skip
def test_a_wrong_record_is_one_sentence_with_file_and_line(
    right: str, wrong: str, line: int, said: str, ran: Said, tmp_path: Path
) -> None:
    assert RIGHT.count(right) == 1
    path = _written(tmp_path, RIGHT.replace(right, wrong))
    code, text = ran()
    assert code == 2 and text.count("error") == 1 and "Traceback" not in text
    assert f"{path.name}:{line}: " in text and said in text


def test_a_shared_part_is_told_with_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = "settings: {}\nparts:\n  both:\n    - conv: {name: a, channels: =wide, kernel: 1}\n"
    _written(tmp_path, shared, "own_parts")
    using = "with: own_parts\nsettings: {}\ninput: {channels: 3, grid: [4]}\nfeatures:\n"
    _written(tmp_path, f"{using}  - both: {{wide: '6'}}\n  - block: {{name: b}}\n", "own_user")
    with pytest.raises(DataError, match=r"own_parts\.yaml:4: parts\.both\.0"):
        resolve_model("arch:own_user").build()


def test_a_user_s_record_is_an_architecture(ran: Said, tmp_path: Path) -> None:
    _written(tmp_path, RIGHT)
    assert ran("--micro-batch", "4") == (0, "")
    code, text = ran("--set", "widht=8")
    assert code == 2 and "did you mean 'width'" in text


_TURNS = """\
settings: {layers: 7}
body: {}
stages:
  - every third:
      times: =layers
      at: =depth % 3 == 2
      boundary: {high: 8}
      layers:
        - linear: {name: wide, rows: 4, k: 2, n: 6, reads: x}
  - else:
      times: =layers
      at: =depth > 0
      boundary: {high: 8}
      layers:
        - linear: {name: square, rows: 4, k: 2, n: 2, reads: x}
  - again:
      times: 2
      shares: else
"""


def test_stages_take_turns_and_share_weights(tmp_path: Path, monkeypatch) -> None:
    """At depth 0 neither runs; ``again`` has no weights of its own but their gradients' sums."""
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    _written(tmp_path, _TURNS)
    net = _body_layers.BodyList(tmp_path.name)(name="x")
    other, third = "else", "every third"
    names = [block.name for block in net.instances()]
    assert names == [other, third, other, other, third, other, "again", "again"]
    assert net.trainable_numel == 2 * 12 + 4 * 4
    again = net.blocks[-1]
    assert [op.name for op in again.ops] == ["square", "shared"]
    assert [k.weight for k in again.ops[-1].bwd] == [3.0 * 4]  # two gradients read, one written


def test_a_shared_block_stands_before(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    _written(tmp_path, _TURNS.replace("shares: else", "shares: elze"))
    with pytest.raises(DataError, match="unknown block 'elze': did you mean 'else'") as caught:
        _body_layers.BodyList(tmp_path.name)(name="x")
    assert caught.value.line == 18
