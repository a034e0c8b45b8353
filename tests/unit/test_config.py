"""Configuration: every key told once, checked, overridden in order; networks of one's own."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from refusals import refuses

from gcnmpi.cli.main import cli
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.networks.stack import stack
from gcnmpi.options import user_network as own
from gcnmpi.options.config import (
    SELECTORS,
    Config,
    from_table,
    keys,
    load_config,
    read_config,
    table_of,
    value_of,
)
from gcnmpi.options.model import NETWORKS
from gcnmpi.options.settings import spelled
from gcnmpi.run.checkpoint import differences, flat

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(FOLDER.rglob("*.toml"))


def test_every_key_has_a_default_and_a_meaning():
    """And every leaf of the configuration is a key."""
    told = [(name, key.default) for name, key in keys().items()]
    assert sorted(told, key=str) == sorted(flat(table_of(Config())), key=str)
    assert all(len(key.meaning) > 5 for key in keys().values())
    lines = run("config", "train", program=cli).stdout.splitlines()
    shown = {line.split(" = ")[0] for line in lines if line[0] != " "}
    assert shown == {name for name, _ in told if name.startswith("train.")}


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
        (b"[model]\nlayers = 1\nhidden = [4, 4]\n", "layers = 1, and model.hidden gives 2 widths"),
        (b"train.lr = 'a'\n", r"hint: such as lr = 0.01"),
    ):
        (tmp_path / "c.toml").write_bytes(content)
        refuses(says, load_config, tmp_path / "c.toml")


def test_every_key_takes_its_example_as_it_is_spelled_and_integers_have_a_bound():
    for name, key in keys().items():
        found = value_of(_with_owner(name, f"{name}={spelled(key.example)}"), name)
        assert found == key.example, name
        if key.hint in (int, tuple[int, ...]):
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
    needed = keys()[name].limits.get("needs")
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


# Networks in files and functions of a program: their names, their source, what is refused.

OWN = '''
"""A network in a file."""
import math as m
from gcnmpi.nn.networks.stack import stack

HOPS = 2
UNUSED = 3

def far(b, x):
    for _ in range(HOPS):
        x = b.aggregate(x)
    return b.scale(x, m.sqrt(0.25))

def build(model, features, classes):
    def convolve(b, x, layer):
        y = b.linear(far(b, x), layer.width, f"{layer.name}.far", bias=model.bias, layer=layer.k)
        return b.add(y, b.linear(x, layer.width, f"{layer.name}.near", layer=layer.k))

    return stack(model, features, classes, convolve)

def plain(model):
    return "row", False

def fixed(model, features, classes):
    return build(model, features, classes)

fixed.matrix = plain

def unnamed(model, features, classes):
    return build(model, features, classes)

unnamed.matrix = lambda model: ("row", False)

def given(model, features, classes):
    return build(model, features, classes)

given.matrix = ("row", False)

def wrong(model):
    return "row"

def half(model, features, classes):
    return build(model, features, classes)

half.matrix = wrong

def nothing(model, features, classes):
    return 7

def fails(model, features, classes):
    return features // 0
'''
SCALE = 0.5
TABLE = np.arange(3)


def here(model, features, classes):
    """A network of this module."""

    def convolve(b, x, layer):
        x = b.scale(b.aggregate(x), SCALE)
        return b.linear(x, layer.width, f"{layer.name}.lin", layer=layer.k)

    return stack(model, features, classes, convolve)


def uses_table(model, features, classes):
    """Uses what no text stands for."""
    return TABLE


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_name_gets_the_hash_of_what_it_stands_for(file, tmp_path):
    name = own.pinned(f"{file}:build")
    assert name.startswith(f"{file}:build@")
    assert own.pinned(name) == name
    file.write_text("# A comment.\n" + OWN.replace("UNUSED = 3", "UNUSED = 4"))
    assert own.pinned(f"{file}:build") == name
    file.write_text(OWN.replace("HOPS = 2", "HOPS = 3"))
    assert own.pinned(f"{file}:build") != name
    refuses(r"own\.py has changed: the network build has the hash", own.load_network, name)


def test_the_source_is_a_script_with_the_same_source(file, tmp_path):
    text = own.source_of(own.load_network(f"{file}:build"))
    assert ("import math as m\n" in text, "UNUSED" in text) == (True, False)
    again = tmp_path / "network.py"
    again.write_text(text)
    assert own.source_of(own.load_network(f"{again}:build")) == text
    assert own.same_network(own.pinned(f"{again}:build"), own.pinned(f"{file}:build"))
    again.write_text(own.source_of(own.load_network(f"{file}:fixed")))
    assert own.load_network(f"{again}:fixed").matrix(None) == ("row", False)


def test_a_function_of_a_program_has_a_name_in_a_block():
    with own.handed_over(here) as name:
        assert own.is_user_network(name)
        assert name.startswith("test_config.py:here@")
        config = from_table({"model": {"name": name, "hidden": [5]}})
        assert network_of(config.model, 4, 3).widths == (4, 5, 3)
    refuses("cannot read", own.load_network, name)


def test_what_has_no_text_is_no_network():
    for function, message in (
        (lambda model, features, classes: None, "within another function|no name"),
        (3, "3 is no function"),
        (uses_table, "TABLE is a ndarray, for which no text stands"),
    ):
        refuses(message, own.handed_over(function).__enter__)


def test_the_configuration_takes_it_with_the_options_that_it_reads(file):
    name = f"model.name={file}:build"
    config, given = read_config(None, [name, "model.hidden=8", "graph.normalize=none"])
    assert config.model.name == own.pinned(f"{file}:build")
    assert set(given) == {"model.name", "model.hidden", "graph.normalize"}
    assert graph_of(config).normalize == "none"
    network = network_of(config.model, 6, 3)
    assert network.widths == (6, 8, 3)
    assert set(network.parameters) > {"convs.0.near.weight", "convs.1.far.bias"}
    says = r"model\.heads is no option of .*own\.py:build"
    refuses(says, load_config, None, [name, "model.heads=4"])
    fixed = load_config(None, [f"model.name={file}:fixed"])
    assert (graph_of(fixed).normalize, graph_of(fixed).self_loops) == ("row", False)
    settings = [f"model.name={file}:fixed", "graph.normalize=sym"]
    refuses(r"graph\.normalize is no option", load_config, None, settings)


def test_names_of_no_network_are_refused(file):
    for name, message in (
        ("{file}", "does not say which function of the file is the network"),
        ("{file}:biuld", "unknown function of .* 'biuld'\n.*did you mean 'build'"),
        ("{file}:build@0123456789abcdef", "has changed"),
        ("nowhere.py:build", "cannot read nowhere.py: No such file"),
        ("own:build", "unknown model.name"),
        ("{file}:unnamed", "a lambda has no name"),
        ("{file}:given", "is no function"),
    ):
        refuses(message, load_config, None, [f"model.name={name.format(file=file)}"])


def test_mistakes_in_it_are_told_with_their_place(file):
    for name, says in (
        ("nothing", "gives a int, not a network"),
        ("fails", r"ZeroDivisionError: .* \(.*own\.py, line 51\)"),
    ):
        config = load_config(None, [f"model.name={file}:{name}"])
        refuses(says, network_of, config.model, 4, 3)
    config = load_config(None, [f"model.name={file}:half"])
    refuses("its matrix gives 'row', not how M is made", graph_of, config)
    file.write_text("def build(:\n")
    refuses(r"SyntaxError: .* \(.*own\.py, line 1\)", own.load_network, f"{file}:build")


def test_a_file_is_no_module_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("X = 1\n")
    (tmp_path / "own.py").write_text("import beside\n\ndef build(m, f, c):\n    return beside.X\n")
    refuses("ModuleNotFoundError: No module named 'beside'", own.load_network, "own.py:build")


def test_a_run_goes_on_with_the_same_network_wherever_its_file_is(file, tmp_path):
    before, moved = {"model": {"name": own.pinned(f"{file}:build")}}, tmp_path / "moved.py"
    for text, differs in ((OWN, False), (OWN.replace("HOPS = 2", "HOPS = 1"), True)):
        moved.write_text(text)
        config = load_config(None, [f"model.name={moved}:build"])
        assert ("model.name" in [name for name, *_ in differences(before, config)]) == differs


def test_the_registry_lists_those_that_come_along_only(file):
    assert f"{file}:build" in NETWORKS
    assert not [name for name in NETWORKS if own.is_user_network(name)]
