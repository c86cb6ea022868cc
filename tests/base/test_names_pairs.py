"""``KEY=VALUE`` texts."""

from simcore.base.names import pair_texts, read_pairs


def test_what_is_written_is_read_again() -> None:
    pairs = {"layers": 16, "swiglu": True, "norm": "rms"}
    found, problems = read_pairs("--set", pair_texts(pairs), "layers=16")
    assert (found, problems) == ({"layers": "16", "swiglu": "true", "norm": "rms"}, [])


def test_every_mistake_is_said_and_the_other_pairs_are_kept() -> None:
    found, problems = read_pairs("--set", ["n-heads=8 width", "depth= n_heads=9"], "layers=16")
    assert found == {"n_heads": "8"}
    assert problems == [
        "--set 'width' is not KEY=VALUE, such as layers=16",
        "--set 'depth=' is not KEY=VALUE, such as layers=16",
        "--set gives n_heads twice",
    ]


def test_a_comma_before_a_key_separates_pairs_and_others_are_part_of_a_value() -> None:
    found, problems = read_pairs("--set", ["layers=16,hidden=64", "targets=q,k,v,rank=8"], "x=1")
    assert not problems
    assert found == {"layers": "16", "hidden": "64", "targets": "q,k,v", "rank": "8"}
