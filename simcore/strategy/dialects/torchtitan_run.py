"""The run that a torchtitan line starts: its configuration by name, and what overrides its keys.

``--module`` and ``--config`` name a Python function of today's releases, ``--job.config_file`` a
TOML file of releases until February 2026. run_train.sh takes them from the variables MODULE and
CONFIG, formerly CONFIG_FILE, and the number of GPUs from NGPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from simcore.base.errors import DataError, nearest
from simcore.strategy.dialects.reading import Reading, flat
from simcore.strategy.dialects.recipes import TABLES, Keys, read_recipe, recipe_names
from simcore.strategy.dialects.shell import allocator_grows, flags, read_script
from simcore.strategy.dialects.source import Source, beside, toml_table, without_files
from simcore.strategy.dialects.torchrun import find_line, read_counts

_LINE = re.compile(r"\btorchtitan\.(?:experiments\.\w+\.)?train\b|\brun_train\.sh\b"
                   r"|--job\.config[_-]file\b")  # fmt: skip
#: A choice among classes of a section: ``activation-checkpoint:full`` (tyro's subcommands).
_CHOICE = re.compile(r"^([a-z][a-z_-]*):([a-z][a-z-]*)$")
_SCRIPT = "run_train.sh"
_TOML = "job.config_file"
#: The family of models, by its module, and the size.
FAMILY, FLAVOR = "model_spec.name", "model_spec.flavor"


def is_line(text: str) -> bool:
    """Whether a text starts torchtitan."""
    return _LINE.search(text) is not None


def keys_of_line(reading: Reading, source: Source) -> tuple[Keys | None, bool]:
    """Keys of the configuration that a line names, and whether it is a TOML file.

    Nodes and processes are stated in ``reading``. None for keys where the configuration is not
    found, which is recorded.
    """
    script = read_script(source)
    line = find_line(script)
    if allocator_grows(script):
        reading.say("growing_segments", True, "PYTORCH_ALLOC_CONF")
    if line is not None and is_line(" ".join((line.script, *line.rest))):
        read_counts(reading, line)
        named, keys = _overrides(reading, line.rest)
    else:
        named, keys = _overrides(reading, _words_of_script(script.commands))
        given = dict(script.variables)
        for own in script.environments:
            given |= own
        reading.say("nnodes", 1, _SCRIPT)
        reading.say("growing_segments", True, _SCRIPT)
        count = reading.whole("NGPU", given.get("NGPU", "8"))
        reading.say("nproc_per_node", count, "NGPU")
        if "CONFIG_FILE" in given and "config" not in named:
            named.setdefault(_TOML, given["CONFIG_FILE"])
        else:
            named = {"module": given.get("MODULE", "llama3"),
                     "config": given.get("CONFIG", "llama3_debugmodel")} | named  # fmt: skip
    if _TOML in named:
        try:
            base = dict(flat(toml_table(beside(source, named[_TOML]))))
        except DataError:
            shipped = _shipped(PurePath(named[_TOML]).stem)
            if shipped is None:
                raise
            how = "is not at hand: read as the configuration of that name in today's release"
            reading.approximate(f"--{_TOML} {named[_TOML]}", how)
            return shipped | keys, False
        return base | keys, True
    missing = [f"--{word}" for word in ("module", "config") if word not in named]
    if missing:
        reading.refuse(" and ".join(missing), "is missing: they name torchtitan's configuration")
        return None, False
    found = _configuration(reading, source, named["module"], named["config"])
    return None if found is None else found | keys, False


def model_of(keys: Keys) -> str | None:
    """The model of models_db that a configuration trains; None where it is not known."""
    family = keys.get(FAMILY, keys.get("model.name"))
    flavor = keys.get(FLAVOR, keys.get("model_spec.0", keys.get("model.flavor")))
    table = TABLES["torchtitan"]
    for model, (first, *_) in table.models.items():
        known = table.recipes[first].get(FLAVOR)
        if (first.partition(".")[0], known) == (family, flavor):
            return model
    return None


def keys_of_file(reading: Reading, source: Source) -> Keys | None:
    """Keys of the configuration in a Python file that has one; several are an error."""
    names = recipe_names(source)
    if len(names) == 1:
        return _followed(reading, source, names[0])
    what = f"has the configurations {', '.join(names)}" if names else "has no configuration"
    how = ": name one with --launch 'torchtitan.train --module FILE --config NAME'" if names else ""
    reading.refuse("the file", what + how)
    return None


def _words_of_script(commands: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Arguments of the last command that runs run_train.sh."""
    for words in reversed(commands):
        for i, word in enumerate(words):
            if PurePath(word).name == _SCRIPT:
                return words[i + 1 :]
    return ()


def _overrides(reading: Reading, words: Sequence[str]) -> tuple[dict[str, str], Keys]:
    """What names the configuration, and the keys that override it."""
    named: dict[str, str] = {}
    keys: Keys = {}
    chosen = [m for word in words if (m := _CHOICE.match(word))]
    for match in chosen:
        keys[match[1].replace("-", "_")] = match[2]
    for flag, values in flags([w for w in words if not _CHOICE.match(w)]):
        name = flag.lstrip("-").replace("-", "_")
        section, _, last = name.rpartition(".")
        if name in ("module", "config", _TOML) and values:
            named[name] = values[0]
        elif section and last.startswith("no_") and not values:
            keys[f"{section}.{last[3:]}"] = False
        elif section or name in ("hf_assets_path", "dump_folder"):
            keys[name] = _value(values)
        else:
            reading.not_understood(" ".join([flag, *values]))
    return named, keys


def _value(values: Sequence[str]) -> Any:
    if not values:
        return True
    text = values[0] if len(values) == 1 else ",".join(values)
    return None if text == "None" else text


def _configuration(reading: Reading, source: Source, module: str, config: str) -> Keys | None:
    """Keys of a configuration that torchtitan ships, or of one in a file of the user."""
    written = without_files(source.text)[1] if "<<" in source.text else {}
    for path in _places(source, module):
        if path.is_file() or path.name in written:
            return _followed(reading, beside(source, str(path)), config)
    short = module.removeprefix("torchtitan.models.").removesuffix(".config_registry")
    table = TABLES["torchtitan"]
    if (keys := table.keys(f"{short}.{config}")) is not None:
        return {FAMILY: short, **keys}
    near = nearest(f"{short}.{config}", sorted(table.recipes), 1)
    hint = " --config ".join(near[0].split(".")) if near else ""
    did = f": did you mean --module {hint}?" if hint else ""
    reading.refuse(
        f"--module {module} --config {config}",
        f"is no configuration of torchtitan known here{did} For one of yours, name its file: "
        "--module FILE.py",
    )
    return None


def _places(source: Source, module: str) -> Iterator[Path]:
    """Files in which the functions of a module of the user may be."""
    near = source.path.parent if source.path is not None else Path()
    as_path = module if module.endswith(".py") else module.replace(".", "/")
    for folder in (near, Path()):
        if module.endswith(".py"):
            yield folder / as_path
        elif module not in {name.split(".")[0] for name in TABLES["torchtitan"].recipes}:
            yield folder / f"{as_path}.py"
            yield folder / as_path / "config_registry.py"
        else:
            yield folder / "torchtitan" / "models" / as_path / "config_registry.py"


def _followed(reading: Reading, source: Source, config: str) -> Keys | None:
    """Keys of a function of a Python file; what it does besides is recorded."""
    recipe = read_recipe(source, config, _shipped)
    if recipe is None:
        names = recipe_names(source)
        near = nearest(config, list(names), 1) or names[:1]
        did = f": did you mean {near[0]}?" if near else ""
        reading.refuse(f"--config {config}", f"is no function of {source.where}{did}")
        return None
    for text in recipe.not_followed:
        reading.not_understood(f"{text} in {config} of {source.where}")
    return recipe.keys


def _shipped(name: str) -> Keys | None:
    """Keys of a function that a user's file imports from torchtitan, by its name alone."""
    table = TABLES["torchtitan"]
    full = next((f for f in table.recipes if f.rpartition(".")[2] == name), None)
    return None if full is None else {FAMILY: full.partition(".")[0], **(table.keys(full) or {})}
