"""Configuration: every key told once, checked, and overridden in the right order."""

import tomllib
from pathlib import Path

import pytest
from command_line import run
from refusals import refuses

from gcnmpi.cli.main import cli
from gcnmpi.options.config import (
    SELECTORS,
    Config,
    key_fields,
    keys,
    load_config,
    read_config,
    table_of,
    value_of,
)
from gcnmpi.options.settings import spelled
from gcnmpi.run.checkpoint import flat

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(FOLDER.rglob("*.toml"))


def test_every_key_has_a_default_and_a_meaning():
    """And every leaf of the configuration is a key."""
    told = [(name, default) for name, default, _ in keys()]
    assert sorted(told, key=str) == sorted(flat(table_of(Config())), key=str)
    assert all(len(meaning) > 5 for _, _, meaning in keys())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_files_that_come_along_are_valid(path):
    config = load_config(path)
    for section, values in tomllib.loads(path.read_text()).items():
        found = value_of(config, section)
        for name, value in values.items() if isinstance(values, dict) else ():
            expected = tuple(value) if isinstance(value, list) else value
            if name == "hidden" and found.layers:
                expected += expected[-1:] * (found.layers - len(expected))
            assert getattr(found, name) == expected


def test_they_are_taken_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("config", "gcn", program=cli).stdout == (FOLDER / "gcn.toml").read_text()
    for name in ("gat", "tuned/cora-gat"):
        assert load_config(name) == load_config((FOLDER / name).with_suffix(".toml"))
        assert read_config(None, network=name)[0].model.name == "gat"
    (tmp_path / "gat").write_text("[model]\nname = 'sage'\n")
    assert load_config("gat").model.name == "sage"  # a file of one's own comes first
    for name, hint in (("gta", "did you mean 'gat'?"), ("gcn.toml", "--config gcn ")):
        assert hint in str(refuses("No such file", load_config, name).hint)
    words = ["submit", "no.graph", "--time", "2:00:00", "--config", "gcn", "--out", "gcn"]
    refuses(r"there is no graph folder no\.graph", cli.main, words, standalone_mode=False)


def test_settings_override_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('dtype = "float64"\n[train]\nepochs = 3\nlr = 1\n[model]\nhidden = [4, 5]\n')
    config = load_config(file, ["train.epochs=7", "dtype=float32"], over=["train.epochs=9"])
    assert (config.dtype, config.kernel) == ("float32", "auto")
    assert (config.train.epochs, repr(config.train.lr)) == (9, "1.0")
    assert (config.model.hidden, config.train.seed) == ((4, 5), 0)
    for second in ("train.epochs=9", " train.epochs = 7", "train.epochs=7"):
        refuses(r"train\.epochs is given twice", load_config, None, ["train.epochs=7", second])
    file.write_text("scheme.name = 'summa'\nscheme.grid = [4, 2]\n")
    assert load_config(file).scheme.grid == "4x2"
    for text in ("[4, 2]", "4X2", "'4x2'", "4 x 2"):
        settings = ["scheme.name=summa", f"scheme.grid={text}"]
        assert load_config(None, settings).scheme.grid == "4x2"


def test_settings_are_toml_or_as_people_write_them():
    for setting, name, value in (
        ("model.hidden=[64, 32]", "model.hidden", (64, 32)),
        (" train.lr = 5e-4 ", "train.lr", 5e-4),
        ("train.seed=9223372036854775807", "train.seed", 2**63 - 1),
        ("model.hidden=64, 32", "model.hidden", (64, 32)),
        ("train.betas=.5,0.25", "train.betas", (0.5, 0.25)),
        ("train.epochs=1e3", "train.epochs", 1000),
        ("train.lr=.5", "train.lr", 0.5),
        ("model.bias=False", "model.bias", False),
        ("scheme.machine=7", "scheme.machine", "7"),
    ):
        assert repr(value_of(load_config(None, [setting]), name)) == repr(value)


def test_mistakes_name_the_key_and_the_nearest_one():
    for setting, says in (
        ("lr=3", "unknown config key 'lr'\n  hint: did you mean 'train.lr'?"),
        ("name=3", "did you mean 'model.name' or 'task.name' or 'scheme.name'?"),
        ("train.colour=3", "hint: keys of train: epochs, seed, "),
        ("zzzz=1", "unknown config key 'zzzz'\n  hint: 'gcnmpi info' lists the keys"),
        ("train=1", "is a table of keys, not a value\n  hint: such as --set train.epochs=200"),
        ("train.epochs", "not of the form key=value\n  hint: such as --set train.epochs=200"),
        ("train.epochs=0", "train.epochs is at least 1, not 0"),
        ("train.epochs=1.5", "takes an integer, not 1.5\n  hint: such as --set train.epochs=200"),
        ("train.lr=fast", "takes a number, not 'fast'\n  hint: such as --set train.lr=0.01"),
        ("train.lr=-1", "train.lr is at least 0"),
        ("train.lr=nan", "train.lr takes a finite number"),
        ("train.seed=9223372036854775808", "train.seed is below"),
        (f"train.epochs={'9' * 20}", "train.epochs is below 2147483648, not a number of 67"),
        (f"train.epochs=-{hex(10**4000)}", "train.epochs"),
        ("train.betas=[0.9, 1.0]", "train.betas takes two numbers below 1"),
        ("model.hidden=a", "takes an integer, not 'a'\n  hint: such as --set model.hidden=64,32"),
        ("model.hidden=[16, 0]", "model.hidden is at least 1, not 0"),
        ("model.hops=2001", "model.hops is at most 2000"),
        (f"model.hidden={[4] * 2001}", "model.hidden has at most 2000 items, not 2001"),
        ("model.dropout=1", "model.dropout is below 1"),
        ("model.bias=1", "takes true or false, not 1\n  hint: such as --set model.bias=true"),
        ("loading.max_buffer_mb=0", "loading.max_buffer_mb is more than 0"),
    ):
        assert says in str(refuses(".", load_config, None, [setting]))


def test_files_that_are_no_configuration(tmp_path):
    for content, says in (
        (b"[train\n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"[model]\nhiden = [1]\n", "did you mean 'model.hidden'"),
        (b"train = 3\n", "train is a table of keys"),
        (b"[model]\nhidden = 'a'\n", r"hint: such as hidden = \[64, 32\]"),
        (b"train.lr = 'a'\n", r"hint: such as lr = 0.01"),
    ):
        (tmp_path / "c.toml").write_bytes(content)
        refuses(says, load_config, tmp_path / "c.toml")


def test_every_key_takes_its_example_as_it_is_spelled_and_integers_have_a_bound():
    for name, entry, hint in key_fields():
        shown = spelled(entry.metadata["example"])
        found = value_of(_with_owner(name, f"{name}={shown}"), name)
        assert found == entry.metadata["example"], name
        if hint in (int, tuple[int, ...]):
            says = rf"{name} is below \d+, not 9223372036854775808"
            refuses(says, load_config, None, [f"{name}={2**63}"])


def test_options_of_something_else_are_refused(tmp_path):
    copies = "scheme.name=replicated"
    for settings, says in (
        (["scheme.grid=2x2"], "an option of schemes summa, split3d, tensor3d, not of scheme p2p"),
        (["train.momentum=0.9"], "not of optimizer adam\n  hint: --set train.optimizer=sgd"),
        (["train.optimizer=sgd", "train.betas=0.9,0.99"], "train.betas is an option of optimizer"),
        (["scheme.name=summa", "scheme.replication=2"], f"hint: --set {copies}, or"),
        (["kernel=scipy", "comm.nccl=yes"], "comm.nccl is an option of kernel cupy"),
        ([copies, "scheme.overlap=false"], "no effect with scheme.sparse = true"),
        ([copies, "scheme.sparse=false", "scheme.transport=isend"],
         "scheme.transport has no effect with scheme.sparse = false\n"
         "  hint: --set scheme.sparse=true, or leave scheme.transport out"),
    ):  # fmt: skip
        assert says in str(refuses(".", load_config, None, settings))
        # In a file too; the same value as a default counts as little as any other.
        lines = (setting.partition("=") for setting in settings)
        values = {"0.9,0.99": "[0.9, 0.99]", "2": "2", "0.9": "0.9", "false": "false"}
        text = "".join(f"{key} = {values.get(value, repr(value))}\n" for key, _, value in lines)
        (tmp_path / "c.toml").write_text(text)
        assert says in str(refuses(".", load_config, tmp_path / "c.toml"))


def _with_owner(name, *settings):
    """A configuration whose scheme, optimizer … reads a key."""
    needed = {key: entry.metadata["needs"] for key, entry, _ in key_fields()}[name]
    for selector, registry in SELECTORS.items():
        owners = registry.owners(name)
        if owners:
            settings = (f"{selector}={owners[0]}", *settings)
            if needed is not None and owners[0] not in registry.owners(needed[0]):
                needed = None  # the entry has no such key, and needs none
    if needed is not None:
        settings = (f"{needed[0]}={spelled(needed[1])}", *settings)
    if name == "train.fanouts":
        settings = ("train.batches=neighbor,1024,10,5", *settings)
    return load_config(None, settings)
