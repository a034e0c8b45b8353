"""Requests of commands and functions: their options, checked as far as no file is read.

Each verb (``train``, ``infer`` …) is a frozen dataclass. The command makes its options of the
fields and their texts, the function of Python has arguments of the same names, and what carries it
out takes the dataclass.
"""

import datetime
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import click
import numpy as np

from gcnmpi.options.config import Config, read_config
from gcnmpi.options.task import LINKS
from partition.errors import UserError
from partition.registry import Registry

# The formats that inference writes beside .npy, by suffix.
RESULT_WRITERS = Registry(
    "format of results",
    {
        ".npz": "gcnmpi.run.results:write_npz",
        ".csv": "gcnmpi.run.results:write_csv",
        ".parquet": "gcnmpi.run.results:write_parquet",
    },
)
RESULTS = (".npy", *RESULT_WRITERS)
TABLES = (".npz", ".csv", ".parquet")  # of several columns
WEIGHTS = (".npz",)
LOGS = Registry(
    "log",
    {
        "csv": "gcnmpi.run.logs.comma_separated:CsvLog",
        "tensorboard": "gcnmpi.run.logs.tensorboard:EventLog",
    },
    {"tensorboard": "tensorboard"},
)
"""Logs of the epochs for other programs: see :mod:`gcnmpi.run.logs`."""

RUN_VARIABLE = "GCNMPI_RUN"  # of the environment: the folder of the run that a job is for
# In the folder of a run.
LAST_WEIGHTS, BEST_WEIGHTS = "weights.npz", "best.npz"
NETWORK = "network.py"  # the user's own network, if it is one

_OutFile = Annotated[Path | None, click.Path(path_type=Path, dir_okay=False)]
Required = Annotated[Path | None, {"required": True}]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run on a graph folder.

    Attributes
    ----------
    partition : NAME
        Partition into as many parts as there are ranks; one rank needs none. Of the two that
        --model auto made under a name, the one that the run can use is taken.
    """

    graph: Annotated[Path, {"argument": True}]
    partition: str | None = None
    config: Config = field(default_factory=Config)
    config_file: Path | None = None  # the file that the configuration was read of
    given: Collection[str] = ()  # keys of the configuration that the user gave

    # Fields that are no options of the command.
    hidden: ClassVar[tuple[str, ...]] = ("config", "config_file", "given")
    # Settings over a file, under those of the user; and values in place of defaults.
    settings: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, object]] = {}
    own_settings: ClassVar[bool] = False  # whether settings may be others than keys

    @classmethod
    def read(
        cls,
        file: str | os.PathLike | None,
        settings: Iterable[str] = (),
        *,
        values: Mapping[str, object] | None = None,
        under: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """The request with the configuration of a file, settings and values of keys.

        ``under``: values in place of defaults. A UserError if something is wrong.
        """
        split = options.get("split")
        over = settings if split is None else (*settings, f"train.split={split}")
        config, given = read_config(
            file, cls.settings, over, network=options.get("network"), values=values,
            under={**cls.defaults, **(under or {})},
        )  # fmt: skip
        config_file = None if file is None else Path(file)
        return cls(config=config, config_file=config_file, given=given, **options)

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        check_distinct(self.files)

    @property
    def files(self) -> dict[str, Path | None]:
        """The files and folders that it names, by option: each is another one."""
        values = {_option_of(name): value for name, value in self.words.items()}
        found = {name: path for name, path in values.items() if isinstance(path, Path)}
        return {"GRAPH": self.graph, "--config": self.config_file, **found}

    @property
    def words(self) -> dict[str, Any]:
        """The options, the same on all ranks; but for the graph, whose path differs among hosts."""
        names = [each.name for each in fields(self) if each.name not in ("graph", *self.hidden)]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class SplitRequest(Request):
    """A run on the examples of a mask.

    Attributes
    ----------
    split : K
        Split of the masks, from 0: the key train.split.
    """

    split: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainRequest(SplitRequest):
    """A training run.

    Attributes
    ----------
    out : DIR
        Folder for run.jsonl; default: runs/GRAPH-PARTITION-DATE. A complete run in it is not run
        again; the record of another one is kept as run.previous.jsonl.
    save_weights : W.npz
        Write the final weights under PyTorch Geometric's names; features that were trained go to
        W.features.npy beside it, where infer finds them.
    save_best : W.npz
        Write the weights of the epoch with the best validation metric (task.metric).
    resume : auto|never|PATH
        auto: from the newest intact checkpoint in DIR, without any from the start. never: from the
        start; record and checkpoints in DIR are kept as ….previous. PATH: from a checkpoint, or the
        newest one of another run; those in DIR after its epoch are removed.
    log : NAME,…
        Write the epochs to DIR for other programs too: csv, tensorboard.
    keeps
        Whether the last and the best weights are written to the folder of the run, too.
    """

    out: Path | None = None
    save_weights: _OutFile = None
    save_best: _OutFile = None
    resume: str = "auto"
    log: str = ""
    keeps: bool = False

    hidden: ClassVar[tuple[str, ...]] = (*Request.hidden, "keeps")

    def __post_init__(self) -> None:
        """Refuse names of files that say another format, and unknown logs."""
        super().__post_init__()
        check_suffix("--save-weights", self.save_weights, WEIGHTS)
        check_suffix("--save-best", self.save_best, WEIGHTS)
        parse_logs(self.log)

    @property
    def logs(self) -> tuple[str, ...]:
        """The logs that are written, by name."""
        return parse_logs(self.log)


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(SplitRequest):
    """A comparison of a run with a serial one, in float64."""

    settings: ClassVar[tuple[str, ...]] = ("dtype=float64",)


@dataclass(frozen=True, kw_only=True)
class InferRequest(Request):
    """An inference with given weights.

    Network, matrix and task are those of the weights, where the file says so: see
    :func:`gcnmpi.run.weights.as_trained`. Without ``out``, rank 0 gets the array.

    Attributes
    ----------
    weights : W
        Weights: .npz of --save-weights; .npz, .safetensors or .pt of another program.
    network : FILE
        TOML file with the network ([model], [graph], [task]) of weights that do not say it.
    out : Y.npy
        File to write, one row per vertex: .npy, .npz, .csv or .parquet.
    what
        What to write. probabilities: softmax of the logits, of several labels (task.name) their
        sigmoid; classes: the column of the largest logit, in tables the name of the class;
        embeddings: the output of the last hidden layer, after its activation. Regression has
        logits only.
    layer : K
        Write the output of layer K, from 1, instead of the logits.
    classes
        The same as --what classes.
    rows : IDS.txt
        Write the rows of these vertices or arcs only, one a line, in this order: ids of the
        imported file (ids.npy) if it had any, else numbers from 0. An arc is SOURCE TARGET, or its
        number in the folder.
    samples : WHICH
        Of weights of task.name = samples: predict those of train, val, test, or all.
    force
        Start although the forecast needs more memory.
    """

    weights: Path
    network: Path | None = None
    out: Required = None
    what: Annotated[str, click.Choice(("logits", "probabilities", "embeddings", "classes"))] = (
        "logits"
    )
    layer: int | None = None
    classes: bool = False
    rows: Path | np.ndarray | None = None
    samples: str | None = None
    force: bool = False

    @property
    def formats(self) -> Collection[str]:
        """Suffixes of files that can be written."""
        return RESULTS

    def __post_init__(self) -> None:
        """Refuse two outputs, and names of files that say another format."""
        if self.classes and self.what not in ("logits", "classes"):
            raise UserError(f"--classes and --what {self.what} exclude each other")
        if self.classes:
            object.__setattr__(self, "what", "classes")
        super().__post_init__()
        check_suffix("--out", self.out, self.formats)

    @property
    def files(self) -> dict[str, Path | None]:
        """Also the features that belong to the weights."""
        return {**super().files, "the features of --weights": features_path(self.weights)}


_OF_ROWS = ("what", "layer", "classes", "rows", "samples")


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(InferRequest, SplitRequest):
    """Metrics of given weights."""

    hidden: ClassVar[tuple[str, ...]] = (*Request.hidden, *_OF_ROWS, "out")


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(InferRequest):
    """Scores of pairs of vertices, or the best partners of vertices.

    Attributes
    ----------
    weights : W
        Weights of a network that was trained for links: .npz.
    out : FILE
        File to write: a score for each pair, .npy, .npz, .csv or .parquet; of partners a table of
        vertex, partner and score, .npz, .csv or .parquet.
    pairs : FILE|NAME
        Score these: a table or .npy of two vertices a row; or a set of pairs in the folder.
    columns : NAMES
        Columns of FILE in their order: source, target, relation, and - for one not read.
    of : train|val|test
        Of the set: those.  [test]
    top : K
        Write the K best partners of each vertex instead.
    vertices : FILE|0,5,9|all
        The vertices that get partners: a file with one a line, some of them, or all.  [all]
    with_arcs
        Partners may be vertices that there is an arc with.
    relation : NAME
        Partners by this relation of the graph: of the type of vertices that it leads to.
    """

    pairs: str | os.PathLike | np.ndarray | None = None
    columns: str | None = None
    of: str = ""
    top: int | None = None
    vertices: str | os.PathLike | np.ndarray | None = None
    with_arcs: bool = False
    relation: str | None = None

    hidden: ClassVar[tuple[str, ...]] = (*Request.hidden, *_OF_ROWS)
    defaults: ClassVar[Mapping[str, object]] = {"task.name": LINKS}

    def __post_init__(self) -> None:
        """Refuse both pairs and partners, and options of the one for the other."""
        if (self.pairs is None) == (self.top is None):
            both = "--pairs and --top exclude each other"
            message = "say what is scored" if self.pairs is None else both
            raise UserError(message, "--pairs FILE scores pairs, --top K finds partners")
        of_others = ("vertices", "with_arcs", "relation") if self.top is None else ("columns", "of")
        for name in of_others:
            if getattr(self, name):
                raise UserError(f"{_option_of(name)} is for --{'pairs' if self.top else 'top'}")
        super().__post_init__()

    @property
    def formats(self) -> Collection[str]:
        """Partners have several columns."""
        return RESULTS if self.top is None else TABLES

    @property
    def files(self) -> dict[str, Path | None]:
        """Also those that may be words of another meaning."""
        named = {_option_of(name): getattr(self, name) for name in ("pairs", "vertices")}
        return super().files | {name: Path(v) for name, v in named.items() if isinstance(v, str)}


def _option_of(name: str) -> str:
    """A field as the command spells it."""
    return f"--{name.replace('_', '-')}"


def parse_logs(text: str) -> tuple[str, ...]:
    """Names of logs from "csv,tensorboard"; empty for an empty text.

    A UserError if one is unknown or named twice, or a library that it needs is not installed.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) < len(names):
        raise UserError(f"--log {text}: a log is named twice")
    for name in names:
        LOGS.get(name)
    return names


def check_suffix(option: str, path: Path | None, suffixes: Collection[str]) -> None:
    """Raise a UserError unless a file has one of the suffixes that can be written."""
    if path is None or path.suffix in suffixes:
        return
    inner = path.with_suffix("")  # it may have one under another: x.npy.gz
    such_as = inner if inner.suffix in suffixes else path.with_suffix(next(iter(suffixes)))
    raise UserError(
        f"{option} {path}: the name ends in {path.suffix or 'no suffix'}, "
        f"written are {', '.join(suffixes)}",
        f"such as {option} {such_as}",
    )


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Raise a UserError if two options name the same file, under whatever name."""
    seen: dict[str, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in seen:
            raise UserError(f"{seen[real]} and {option} name the same file: {path}")
        seen[real] = option


def run_name(graph: Path, partition: str | None) -> str:
    """Default name of the folder of a run."""
    # Only one process uses it, so clocks need not agree.
    date = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"{graph.name.removesuffix('.graph')}-{partition or 'serial'}-{date}"


def job_folder(out: Path | None) -> Path | None:
    """Folder of a run in a program of the user's; None: a new one.

    A program that ``gcnmpi submit`` has started finds that of its job in the environment. A
    UserError if it names another: nobody would look for the end of the run there.
    """
    given = os.environ.get(RUN_VARIABLE)
    if not given:
        return out
    if out is not None and os.path.realpath(out) != os.path.realpath(given):
        raise UserError(
            f"the folder of the run is {out}, and the job looks for it in {given}",
            f"None as the folder takes that of the job; or submit --out {out}",
        )
    return Path(given)


def features_path(weights: str | os.PathLike) -> Path:
    """Where the trained features are kept that belong to a file of weights."""
    return Path(weights).with_suffix(".features.npy")
