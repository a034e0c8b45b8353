"""Methods that multiply by one sparse matrix again and again: one short file each."""

from partition.registry import Registry

METHODS = Registry(
    "method",
    {
        "pagerank": "gcnmpi.propagation.pagerank:METHOD",
        "label-propagation": "gcnmpi.propagation.labels:METHOD",
        "correct-and-smooth": "gcnmpi.propagation.correct_and_smooth:METHOD",
        "sgc": "gcnmpi.propagation.powers:SGC",
        "sign": "gcnmpi.propagation.powers:SIGN",
        "appnp": "gcnmpi.propagation.appnp:METHOD",
        "laplacian-eigenvectors": "gcnmpi.propagation.eigenvectors:METHOD",
        "embed": "gcnmpi.propagation.embed:METHOD",
        "components": "gcnmpi.propagation.components:METHOD",
        "core-numbers": "gcnmpi.propagation.cores:METHOD",
    },
)

# The values of the option ``method`` of ``embed``.
EMBEDDINGS = Registry(
    "embedding",
    {
        "fastrp": "gcnmpi.propagation.fastrp:EMBEDDING",
        "prone": "gcnmpi.propagation.prone:EMBEDDING",
        "randsvd": "gcnmpi.propagation.randsvd:EMBEDDING",
    },
)
