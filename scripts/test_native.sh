#!/usr/bin/env bash
# The tests of the native kernel on a build of its own, beside the installed one: with another
# compiler, without AVX, without OpenMP or with sanitizers. Arguments go to CMake:
#   ./scripts/test_native.sh -DCMAKE_CXX_COMPILER=clang++
#   ./scripts/test_native.sh -DGCNMPI_VECTORS=OFF
#   ./scripts/test_native.sh -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON
#   ./scripts/test_native.sh -DGCNMPI_SANITIZE=address,undefined
set -euo pipefail
. "$(dirname "$0")/environment.sh" test
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m pip install -q --target "$work/nanobind" nanobind
nanobind=$(PYTHONPATH="$work/nanobind" python -m nanobind --cmake_dir)
cmake -S . -B "$work/build" -DCMAKE_BUILD_TYPE=Release -Dnanobind_ROOT="$nanobind" \
    -DPython_EXECUTABLE="$(command -v python)" "$@"
cmake --build "$work/build"
# The sanitizer of addresses must be the first library that a process loads, and must find that of
# C++ as it starts: it ends the process at the first exception otherwise.
case "$*" in *address*)
  LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" ;;
esac
LD_PRELOAD="${LD_PRELOAD:-}" ASAN_OPTIONS=detect_leaks=0 python - "$work"/build/_native.*so <<'END'
import importlib.util
import sys

import pytest

spec = importlib.util.spec_from_file_location("gcnmpi.kernels._native", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module  # instead of the installed one
spec.loader.exec_module(module)
names = ("native", "sampling", "kernels", "arc_kernels", "neighbours", "norms")
files = [f"tests/unit/test_{name}.py" for name in names]
raise SystemExit(pytest.main(["-q", "-x", *files]))
END
