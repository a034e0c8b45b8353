"""Networks in files and functions of a program: their names, their source, what is refused."""

import numpy as np
import pytest
from refusals import refuses

from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.networks.stack import stack
from gcnmpi.options.config import from_table, load_config, read_config
from gcnmpi.options.model import NETWORKS
from gcnmpi.options.own_code import handed_over, is_own, load_network, pinned, same_network
from gcnmpi.options.source import source_of
from gcnmpi.run.checkpoint import differences

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
    name = pinned(f"{file}:build")
    assert name.startswith(f"{file}:build@")
    assert pinned(name) == name
    file.write_text("# A comment.\n" + OWN.replace("UNUSED = 3", "UNUSED = 4"))
    assert pinned(f"{file}:build") == name
    file.write_text(OWN.replace("HOPS = 2", "HOPS = 3"))
    assert pinned(f"{file}:build") != name
    refuses(r"own\.py has changed: the network build has the hash", load_network, name)


def test_the_source_is_a_script_with_the_same_source(file, tmp_path):
    text = source_of(load_network(f"{file}:build"))
    assert ("import math as m\n" in text, "UNUSED" in text) == (True, False)
    again = tmp_path / "network.py"
    again.write_text(text)
    assert source_of(load_network(f"{again}:build")) == text
    assert same_network(pinned(f"{again}:build"), pinned(f"{file}:build"))
    again.write_text(source_of(load_network(f"{file}:fixed")))
    assert load_network(f"{again}:fixed").matrix(None) == ("row", False)


def test_a_function_of_a_program_has_a_name_in_a_block():
    with handed_over(here) as name:
        assert is_own(name)
        assert name.startswith("test_own_code.py:here@")
        config = from_table({"model": {"name": name, "hidden": [5]}})
        assert network_of(config.model, 4, 3).widths == (4, 5, 3)
    refuses("cannot read", load_network, name)


def test_what_has_no_text_is_no_network():
    for function, message in (
        (lambda model, features, classes: None, "within another function|no name"),
        (3, "3 is no function"),
        (uses_table, "TABLE is a ndarray, for which no text stands"),
    ):
        refuses(message, handed_over(function).__enter__)


def test_the_configuration_takes_it_with_the_options_that_it_reads(file):
    name = f"model.name={file}:build"
    config, given = read_config(None, [name, "model.hidden=8", "graph.normalize=none"])
    assert config.model.name == pinned(f"{file}:build")
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
    refuses(r"SyntaxError: .* \(.*own\.py, line 1\)", load_network, f"{file}:build")


def test_a_file_is_no_module_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("X = 1\n")
    (tmp_path / "own.py").write_text("import beside\n\ndef build(m, f, c):\n    return beside.X\n")
    refuses("ModuleNotFoundError: No module named 'beside'", load_network, "own.py:build")


def test_a_run_goes_on_with_the_same_network_wherever_its_file_is(file, tmp_path):
    before, moved = {"model": {"name": pinned(f"{file}:build")}}, tmp_path / "moved.py"
    for text, differs in ((OWN, False), (OWN.replace("HOPS = 2", "HOPS = 1"), True)):
        moved.write_text(text)
        config = load_config(None, [f"model.name={moved}:build"])
        assert ("model.name" in [name for name, *_ in differences(before, config)]) == differs


def test_the_registry_lists_those_that_come_along_only(file):
    assert f"{file}:build" in NETWORKS
    assert not [name for name in NETWORKS if is_own(name)]
