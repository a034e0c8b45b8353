"""The Spack recipe, of api v2.0: spack repo add CHECKOUT/scripts/recipes/spack_repo/gcnmpi."""
# ruff: noqa: F403, F405

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyGcnmpi(PythonPackage):
    """Exact full-graph training and inference of graph neural networks over many machines.

    It is built from the checkout that holds this recipe. Spack has no packages for METIS'
    and Mt-KaHyPar's Python modules and python-graphblas: see docs/sites.md.
    """

    git = Path(__file__).resolve().parents[6].as_uri()

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("plots", default=True, description="Figures as files")
    variant("cuda", default=False, description="The kernel for NVIDIA's GPUs")

    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-nanobind@2.4:", type="build")
    depends_on("py-scikit-build-core@0.11:", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-autograd@1.7:", type="run")
    depends_on("py-click@8.2:", type="run")
    depends_on("py-jinja2@3.1:", type="run")
    depends_on("py-markupsafe@2.1:", type="run")
    depends_on("py-mpi4py@4:", type="run")
    depends_on("py-msgspec@0.20:", type="run")
    depends_on("py-numba@0.60:", type="run")
    depends_on("py-numpy@1.26:", type="run")
    depends_on("py-pyarrow@15:", type="run")
    depends_on("py-rich@13:", type="run")
    depends_on("py-scipy@1.13:", type="run")
    depends_on("py-threadpoolctl@3.5:", type="run")
    depends_on("py-matplotlib@3.8:", type="run", when="+plots")
    depends_on("py-cupy@13:", type="run", when="+cuda")
