"""Commands of ``gcn-partition`` that make a graph folder, or add to one, and their options."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from partition.cli import common
from partition.commands import Commands, Result, command, like, parse_bytes
from partition.errors import DataWarning, UserError
from partition.graph import store
from partition.graph.graph import FORMS, MASKS, Graph
from partition.graph.relations import STORED_NAME
from partition.importing import assemble, synthetic
from partition.importing.arcs import DUPLICATES, SELF_LOOPS
from partition.importing.data_files import MASK_NUMBERS, SPLIT_EXAMPLES, ArcFiles, RandomSplit
from partition.importing.readers import READERS, STREAMS
from partition.importing.readers.source import Layout
from partition.importing.readers.text import COMMENTS
from partition.reporting import tables

_AUTOMATIC = "auto"
Comments = Annotated[str | None, click.Choice(COMMENTS)]


@dataclass(frozen=True)
class _SourceOptions:
    """Options of an import about the source and its arcs.

    Attributes
    ----------
    format
        Format of SOURCE: Matrix Market, a list of arcs, a graph of METIS, GraphML, GML or node-link
        JSON (by NetworkX), the planetoid files (SOURCE is their common prefix), the npz of
        gnn-benchmark or of SciPy, an edge_index in an npy, a folder of OGB with raw and split, a
        file of PyTorch Geometric or of dgl.save_graphs, a list of arcs in Parquet, triples of a
        list with a column of relations, or tables of relations; auto looks at the file.
    columns : NAMES
        Columns of a list of arcs, in their order: source, target, weight, relation, and - for a
        column that is not read. Further columns are not read.
    header
        Whether the first line of a list of arcs is a header.  [default: determined from it]
    string_ids
        Read ids in a list of arcs as text, even if all are digits.
    vertices : N|A..B
        Vertices of a list of arcs, including those without arcs: N for 0..N-1 or 1..N, or A..B.
    undirected
        Add the reverse of every arc.
    direction
        Whether a vertex sums over the arcs that enter it or leave it.  [default: in]
    duplicates
        For arcs that are listed more than once: merge them, with the weight of the first; add their
        weights; keep all, each with its own data; or fail.
    self_loops
        Keep or drop arcs from a vertex to itself.
    arc_features : NAMES|FILE.npy|random:D
        Features of the arcs: columns of SOURCE by names and patterns, such as w1,w2 or 'f*';
        weight: the weights, which are then none; FILE.npy with a row for each arc that SOURCE
        lists; or D random columns.
    arc_label : NAMES|FILE.npy|random:C
        Labels of the arcs: a column of SOURCE with classes or fractions, several with numbers,
        FILE.npy, or C random classes.
    """

    format: Annotated[str, click.Choice([_AUTOMATIC, *READERS])] = _AUTOMATIC
    columns: str | None = None
    header: bool | None = None
    string_ids: bool = False
    vertices: str | None = None
    undirected: bool = False
    direction: common.Direction = None
    duplicates: Annotated[str, click.Choice(DUPLICATES)] = "merge"
    self_loops: Annotated[str, click.Choice(SELF_LOOPS)] = "keep"
    arc_features: str | None = None
    arc_label: str | None = None


@dataclass(frozen=True)
class _VertexData:
    """Data of the vertices: features, labels, targets and masks, and the ids of their rows.

    Attributes
    ----------
    features : X|random:D|orthogonal:D|TYPE=X
        A file, or D random columns; with orthogonal:D of length 1 and at right angles. Of a graph
        with vertex types, TYPE=FILE for each type.
    labels : Y|random:C
        A file, or C random classes.
    label_column : NAME
        Column of the table of --labels that has the labels, by its name in the header; or of that
        of --features, whose other columns of numbers are the features.
    targets : FILE
        Numbers to learn, or several labels a vertex as 0 and 1; NaN where unknown.
    train_mask : FILE
        Vertices to train on; a column for each split, or a * in FILE for its number.
    val_mask : FILE
        Vertices to validate on, likewise.
    test_mask : FILE
        Vertices to test on, likewise.
    split : RULE
        Draw the masks among vertices with labels. random:0.6,0.2,0.2: shares to train on, validate
        on and test on. per-class:20,500,1000: 20 of each class to train on, and 500 and 1000 of the
        others.
    splits
        Number of splits that are drawn.  [default: 1]
    ids : FILE|sorted
        FILE with the id of each row of the files of features, labels and masks; or sorted, if their
        rows are in the order of increasing ids. For a list of arcs, FILE also determines the
        vertices of the graph and their order.
    comments
        Lines of text that are comments: those that begin with these signs.  [default: lines that
        begin with # or % and cannot be rows]
    missing_label : WORD
        Word for no label, beside an empty one and -1; may be given several times. All other words
        are classes.  [default: NaN; words such as NA are refused among numbers]
    mask_numbers
        Meaning of numbers in a mask: ids of vertices, or rows of the files.
    seed
        Seed of random data and splits.
    keep_features
        Keep features as a dense array or as a sparse matrix; auto: sparse if at most 5 % are not 0
        and a dense array would take 64 MiB or more.
    """

    features: tuple[str, ...] = ()
    labels: str | None = None
    label_column: str | None = None
    targets: Path | None = None
    train_mask: Path | None = None
    val_mask: Path | None = None
    test_mask: Path | None = None
    split: str | None = None
    splits: int | None = None
    ids: str | None = None
    comments: Comments = None
    missing_label: tuple[str, ...] = ()
    mask_numbers: Annotated[str | None, click.Choice(MASK_NUMBERS)] = None
    seed: int = 0
    keep_features: Annotated[str, click.Choice(FORMS)] = _AUTOMATIC

    def to_fields(self) -> dict[str, Any]:
        """Convert the options to arguments of :func:`partition.importing.assemble.attach_files`."""
        found = dict(vars(self))
        split, splits = found.pop("split"), found.pop("splits")
        if split is None and splits is not None:
            hint = f"--split {SPLIT_EXAMPLES}"
            raise UserError("--splits says how many splits are drawn, but not how", hint)
        of_types: dict[str, Path] = {}
        of_all = []
        for text in self.features:
            name, equals, file = text.partition("=")
            if not equals or not STORED_NAME.fullmatch(name) or Path(text).exists():
                of_all.append(text)
            elif name in of_types:
                raise UserError(f"--features {name}=… is given twice")
            else:
                of_types[name] = Path(file)
        if len(of_all) > 1 or (of_all and of_types):
            hint = "once, or TYPE=FILE for each type of vertices"
            raise UserError("--features is given twice", hint)
        rule = None
        if split is not None:
            rule = RandomSplit(split, 1 if splits is None else splits, self.seed)
        masks = {mask: found.pop(f"{mask}_mask") for mask in MASKS}
        return found | {
            "features": of_all[0] if of_all else None,
            "type_features": of_types,
            "masks": {mask: file for mask, file in masks.items() if file is not None},
            "missing_labels": found.pop("missing_label"),
            "split": rule,
        }


@dataclass(frozen=True)
class ImportOptions(_VertexData, _SourceOptions):
    """All options of an import, of one process or of the ranks of a job."""

    def to_import_fields(
        self, relation: tuple[str, ...] = (), nodes: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Arguments of an import; the tables of ``relation`` and ``nodes`` are in its layout."""
        found = self.to_fields()
        said = ("columns", "header", "comments", "string_ids", "vertices", "ids")
        layout = {name: found.pop(name) for name in said}
        # Names of columns are said of the list; files and random data are not in it.
        of_arcs = {name: found.pop(name) for name in ("arc_features", "arc_label")}
        files = {
            name: value if re.search(r"^random:|\.npy$", value or "") else None
            for name, value in of_arcs.items()
        }
        layout |= {name: value for name, value in of_arcs.items() if files[name] is None}
        return found | {
            "direction": self.direction or "in",
            "arc_files": ArcFiles(files["arc_features"], files["arc_label"], {}, self.seed),
            "layout": Layout(**layout, relation=relation, nodes=nodes),
        }


@command
def import_(
    source: Path,
    out: common.NewGraph,
    *,
    options: ImportOptions,
    relation: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
    reverse: bool = False,
    memory: Annotated[str | None, {"also": f"For {', '.join(STREAMS)}."}] = None,
    force: common.Force = False,
) -> Result:
    """Read the graph in the file or folder SOURCE and write it to the folder OUT.graph.

    SOURCE may also be a data set that PyTorch Geometric, OGB or DGL downloads, if it is installed:
    pyg:CLASS/NAME, ogb:NAME, dgl:CLASS.

    Parameters
    ----------
    relation : A,NAME,B=FILE
        Table of the arcs of a relation, in the folder SOURCE; once for each.
    nodes : TYPE=FILE|N
        Table of the vertices of a type, with ids, features, label and split; or how many there are.
        Without it, they are those of the arcs.
    reverse
        Add the reverse of each relation, rev_NAME, unless it is there or the relation is symmetric.
    memory : SIZE
        Take at most so much memory, such as 3GB, and sort the arcs in files beside OUT.graph, with
        the same result.  [default: sort in memory]

    Examples
    --------
    gcn-partition import soc-Slashdot0902.mtx.gz slashdot.graph --features random:16
    gcn-partition import planetoid/ind.cora cora.graph
    gcn-partition import ogbn_products products.graph --undirected
    gcn-partition import pyg:Planetoid/Cora cora.graph
    gcn-partition import ogb:ogbn-arxiv arxiv.graph --undirected
    gcn-partition import links.txt links.graph --undirected --features x.npy --labels y.csv
    gcn-partition import links.csv links.graph --features people.csv --label-column kind
    gcn-partition import calls.csv calls.graph --columns source,target,-,weight --ids people.txt
    gcn-partition import train.tsv kg.graph --columns source,relation,target --reverse
    gcn-partition import ogbn_mag mag.graph --reverse
    gcn-partition import DIR g.graph --relation author,writes,paper=w.csv --nodes paper=p.parquet
    """
    fields = options.to_import_fields(relation, nodes)
    limit = None if memory is None else parse_bytes(memory)
    with common.shown_warnings(DataWarning, "note"), common.working() as tell:
        manifest = assemble.import_graph(
            source, out, reverse=reverse, overwrite=force, memory=limit, report=common.note,
            tell=tell, **fields,
        )  # fmt: skip
    if manifest.source["format"] == "ogb" and manifest.directed and not options.undirected:
        # The folder does not say it; its loader adds the reverses for these two.
        common.note(
            "OGB lists an undirected edge once: for ogbn-products and ogbn-proteins, import with "
            "--undirected"
        )
    elif manifest.vertex_types and not reverse:
        common.note(
            "a vertex sums over the arcs that enter it; --reverse adds the reverse of each "
            "relation, so that the types at their sources sum too"
        )
    elif manifest.directed and not (manifest.vertex_types or options.direction):
        common.note(
            "the graph is directed, and a vertex sums over the arcs that enter it; --undirected "
            "adds the reverse of every arc, as is usual for citations and links"
        )
    return _result(out, manifest)


@command
def attach(
    graph: common.GraphFolder,
    *,
    data: _VertexData,
    arc_features: str | None = None,
    arc_labels: str | None = None,
    arc_train_mask: str | None = None,
    arc_val_mask: str | None = None,
    arc_test_mask: str | None = None,
) -> Result:
    """Add data of vertices and arcs to a graph folder, or replace those that it has.

    Arcs and partitions stay as they are.

    Parameters
    ----------
    arc_features : FILE.npy|random:D
        Features of the arcs in their order in the folder: a file with a row for each, or D random
        columns.
    arc_labels : FILE.npy|random:C
        Labels of the arcs likewise: classes, or numbers with NaN where unknown; or C random
        classes.
    arc_train_mask : FILE.npy
        Arcs to train on: true or false for each.
    arc_val_mask : FILE.npy
        Arcs to validate on.
    arc_test_mask : FILE.npy
        Arcs to test on.

    Examples
    --------
    gcn-partition attach links.graph --features x.npy --labels y.csv --train-mask train.npy
    gcn-partition attach calls.graph --features x.csv --ids people.txt
    gcn-partition attach links.graph --split random:0.6,0.2,0.2 --splits 10
    gcn-partition attach links.graph --arc-features random:16 --arc-labels y.npy
    gcn-partition attach mag.graph --features author=a.npy --features institution=i.npy
    """
    masks = {"train": arc_train_mask, "val": arc_val_mask, "test": arc_test_mask}
    of_arcs = {mask: file for mask, file in masks.items() if file is not None}
    arc_files = ArcFiles(arc_features, arc_labels, of_arcs, data.seed)
    fields = data.to_fields()
    said = ("features", "type_features", "labels", "targets", "label_column", "masks", "split")
    given = arc_files.given() or any(fields[name] for name in said)
    if not given and data.keep_features == _AUTOMATIC:
        hint = "give --features, --labels, --targets, a mask, --split, or --arc-features"
        raise UserError("there is nothing to attach", hint)
    with common.shown_warnings(DataWarning, "note"):
        made = assemble.attach_files(graph, arc_files=arc_files, report=common.note, **fields)
    return _result(graph, made)


@command
def export(
    graph: common.GraphFolder,
    out: Path,
    *,
    relation: tuple[str, ...] = (),
    force: common.Force = False,
) -> Result:
    """Write the relations and types of a heterogeneous graph as tables into the folder DIR.

    A csv for each relation, Parquet for each type, and graph.toml, which import reads.

    Parameters
    ----------
    out : DIR
    relation : NAME
        Write a graph folder DIR with the arcs of this relation only, and all vertices;
        SOURCE,NAME,TARGET where several have a name. May be repeated.

    Examples
    --------
    gcn-partition export mag.graph tables
    gcn-partition import tables again.graph
    gcn-partition export mag.graph cites.graph --relation cites --relation rev_cites
    """
    from partition.importing.assemble import export_relations, export_tables

    stored = store.open_graph(graph)
    if relation:
        return _result(out, export_relations(stored, out, relation, force, common.note))
    facts = export_tables(stored, out, force)
    line = f"{out}: {len(facts['relations']):,} relations, {len(facts['nodes']):,} types"
    return Result(facts, line)


def _result(path: Path, manifest: store.Manifest) -> Result:
    summary = tables.describe_data(store.open_graph(path))
    facts = {"path": str(path), "manifest": manifest, "summary": summary}
    return Result(facts, lambda _: tables.show_data(path, manifest, summary))


@command
@like(synthetic.sbm)
def sbm(
    out: common.NewGraph,
    *,
    n: int = 20000,
    classes: int = 8,
    force: common.Force = False,
    **options: Any,
) -> Result:
    """A stochastic block model: planted communities, with features that depend on them.

    Parameters
    ----------
    n : -n --vertices
    classes : -c --classes
        Communities.
    degree
        Mean degree.
    intra
        Share of edges in a community.
    features
        Columns of features.
    noise
        Standard deviation.
    train
        Share to train on.
    val
        Share to validate on.
    """
    facts = {"n": n, "classes": classes} | options
    return write_synthetic(out, "sbm", synthetic.sbm(**facts), facts, force)


@command
@like(synthetic.rmat)
def rmat(
    out: common.NewGraph,
    *,
    scale: int = 14,
    arcs: int | None = None,
    force: common.Force = False,
    **options: Any,
) -> Result:
    """An R-MAT graph, with very unequal degrees: few vertices have very many arcs.

    Parameters
    ----------
    scale
        2**SCALE vertices.
    arcs
        Arcs to draw.  [default: 16 per vertex]
    a : -a
        Upper left probability.
    b : -b
        Upper right probability.
    c : -c
        Lower left probability.
    undirected
        Add the reverse of every arc.
    shuffle
        Number vertices at random.
    features
        Columns of random features.  [default: none]
    classes
        Random classes.  [default: none]
    """
    arcs = 16 << max(0, scale) if arcs is None else arcs
    facts = {"scale": scale, "arcs": arcs} | options
    return write_synthetic(out, "rmat", synthetic.rmat(**facts), facts, force)


@command
@like(synthetic.hetero)
def hetero(
    out: common.NewGraph,
    *,
    types: str = synthetic.TYPES,
    relations: str = synthetic.RELATIONS,
    features: int = 16,
    force: common.Force = False,
    **options: Any,
) -> Result:
    """A graph of several types and relations: labels that relations tell.

    Each vertex has a community, and an arc of the r-th relation joins community c to c + r.

    Parameters
    ----------
    types : TYPE:N[:D],…
        Vertices of each type, and columns of features where it is not --features. The first has
        labels.
    relations : A-NAME-B:N,…
        Arcs of each relation.
    features
        Columns of features.
    classes : -c --classes
        Communities.
    intra
        Share of arcs that follow the shift of their relation.
    noise
        Standard deviation.
    train
        Share to train on.
    val
        Share to validate on.
    reverse
        Add the reverse of each relation.

    Examples
    --------
    gcn-partition synth hetero g.graph --reverse
    gcn-partition synth hetero g.graph --types paper:4000,author:6000:8,venue:50:0 \\
        --relations author-writes-paper:20000,paper-cites-paper:8000,paper-at-venue:4000
    """
    store.check_target(out, force)
    sizes = synthetic.parse_types(types, features)
    graph = synthetic.hetero(sizes, synthetic.parse_relations(relations), **options)
    facts = {"types": types, "relations": relations, "features": features} | options
    return write_synthetic(out, "hetero", graph, facts, force)


@click.group(cls=Commands, commands=[sbm, rmat, hetero])
def synth() -> None:
    """Make a synthetic graph.

    sbm has communities and labels; rmat has very unequal degrees; hetero has types of vertices and
    relations.
    """


def write_synthetic(
    out: Path, kind: str, graph: Graph, options: dict[str, Any], force: bool
) -> Result:
    """Write a graph of a generator, whose arguments the manifest gets, and say what it has."""
    source = {"synthetic": kind} | {key: v for key, v in options.items() if v is not None}
    manifest = store.write_graph(out, graph, source=source, overwrite=force, report=common.note)
    direction = "directed" if manifest.directed else "undirected"
    line = (
        f"{out}: {manifest.n:,} vertices, {manifest.nnz:,} arcs, {direction}, "
        f"{manifest.features} features, {manifest.classes} classes"
    )
    return Result({"path": str(out), "manifest": manifest}, line)
