"""Prove of the GPU kernel as much as goes without a GPU.

    check_cuda.py [--table | --emulate [MOST]]

* NVRTC, which CuPy calls at run time, compiles the CUDA source for the architectures below, for
  both dtypes, with CUDA 12 and 13 and the options of CuPy; no kernel spills registers or takes
  more than 64.
* Every name of CuPy that gcnmpi uses exists in CuPy 13 and 14 (CUDA 12 and 13), its constants have
  the values and its functions the parameters of the stand-in under tests/fake, on which the tests
  run.

``--emulate`` runs the tests of kernels on the emulator of the stand-in and checks every access to
memory of the first MOST launches (else all) of each kernel and type, of one block and of more. That
none of a kernel is checked is an error.

Libraries come as wheels into a cache (XDG_CACHE_HOME, else ~/.cache), about 470 MB once. Libraries
that cannot be fetched are skipped with a line; ``--table`` prints registers as Markdown, for
docs/measured/gpu.md.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gcnmpi-cuda"
ARCHITECTURES = (75, 80, 90, 100)
CASES = [(dtype, a) for dtype in ("float32", "float64") for a in ARCHITECTURES]
MOST_REGISTERS = 64
FROM_CUPY = "-ftz=true"  # option of NVRTC that CuPy adds: subnormal numbers of float32 are zero
PATIENCE = 180  # seconds for a wheel
NVRTC = {"CUDA 12": "nvidia-cuda-nvrtc-cu12==12.9.86", "CUDA 13": "nvidia-cuda-nvrtc==13.5.37"}
CUPY = ("cupy-cuda12x==13.6.0", "cupy-cuda12x==14.2.0", "cupy-cuda13x==14.2.0")
# Files of tests/unit that launch every kernel.
EMULATED = ("messages", "norms", "kernels", "neighbours", "arc_kernels", "cupy_pieces")
# Libraries that modules of CuPy are linked to. They are hundreds of megabytes and are not called
# here, so empty ones stand in for them.
LINKED = ("libcublas.so.12", "libcublas.so.13", "libcublasLt.so.12", "libcublasLt.so.13",
          "libcusparse.so.12", "libnvJitLink.so.12",
          "libnvJitLink.so.13", "libnccl.so.2")  # fmt: skip
_COMPILED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


def main(*options: str) -> int:
    """0 where all is well, or was skipped."""
    sys.path.insert(0, str(ROOT))
    if options[:1] == ("--emulate",):
        return emulate(*options[1:])
    began, table, failures = time.monotonic(), {}, []
    passed = CACHE / f"passed-{fingerprint()}"
    if passed.is_file() and "--table" not in options:
        print("check_cuda: nothing that it reads has changed since it passed")
        return 0
    folders = {wheel: fetched(wheel) for wheel in (*NVRTC.values(), *CUPY)}
    make_empty_libraries()
    # Every compilation and every comparison is one processor's, of all that there are.
    with ProcessPoolExecutor() as pool:
        logs = {
            name: [(*case, pool.submit(log_of, folders[wheel], *case)) for case in CASES]
            for name, wheel in NVRTC.items()
            if folders[wheel] is not None
        }
        found = [pool.submit(compared, wheel, folders[wheel]) for wheel in CUPY if folders[wheel]]
        for name, of_name in logs.items():
            used, wrong = compiled(name, [(*case, log.result()) for *case, log in of_name])
            table[name] = used
            failures += wrong
        failures += [failure for one in found for failure in one.result()]
    if "--table" in options:
        print("\n\n".join(f"{name}\n\n{markdown(used)}" for name, used in table.items()))
    for failure in failures:
        print(f"error: {failure}")
    print(f"check_cuda: {len(failures)} errors, {time.monotonic() - began:.0f} s")
    if not failures and all(folders.values()):
        passed.touch()
    return 1 if failures else 0


def emulate(most: str = "1000000000") -> int:
    """The exit code of the tests of kernels, where so many launches of each are checked."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        folders = [ROOT / "tests" / "fake", ROOT, os.environ.get("PYTHONPATH", "")]
        words = {
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "FAKE_CHECKS": most,
            "FAKE_COUNTS": str(counts),
        }
        files = [f"tests/unit/test_{name}.py" for name in EMULATED]
        command = [sys.executable, "-m", "pytest", "-q", "-k", "cupy", *files]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **words}).returncode
        lines = counts.read_text().splitlines() if counts.is_file() else []
    launches, checked = Counter[str](), Counter[str]()
    for name, _, begun, looked_at in map(json.loads, lines):
        launches[name] += begun
        checked[name] += looked_at
    from gcnmpi.kernels import cuda

    names = cuda.declarations()
    if unseen := [name for name in names if not checked[name]]:
        print(f"error: no launch was checked of {', '.join(unseen)}")
    print(
        f"emulated: {len(names)} kernels, {launches.total()} launches, "
        f"{checked.total()} checked, {time.monotonic() - began:.0f} s"
    )
    return code or bool(unseen)


def fingerprint() -> str:
    """Of everything that decides the result."""
    patterns = ("scripts/c*_cu*.py", "tests/fake/**/*.py", "gcnmpi/**/*.py")
    texts = [path.read_bytes() for p in patterns for path in sorted(ROOT.glob(p))]
    return hashlib.sha256(b"\0".join([*texts, sys.version.encode()])).hexdigest()[:16]


def fetched(wheel: str) -> Path | None:
    """The folder that a wheel is installed in; None, said once, where there is no such wheel."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / f"{wheel}-python{version}"
    if folder.is_dir():
        return folder
    staged = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--retries", "1",
           "--disable-pip-version-check", "--only-binary=:all:", "--target", staged]  # fmt: skip
    try:
        done = subprocess.run([*pip, wheel], capture_output=True, text=True, timeout=PATIENCE)
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = [f"not within {PATIENCE} s"], True
    if failed:
        print(f"skipped: {wheel} cannot be fetched: {said[-1]}")
        shutil.rmtree(staged, ignore_errors=True)
        return None
    staged.replace(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"fetched {wheel}: {size / 1e6:.0f} MB installed")
    return folder


# NVRTC.

Used = dict[tuple[str, str], dict[int, tuple[int, int]]]
"""(kernel, dtype) → architecture → registers, bytes spilled."""


def compiled(name: str, logs: list[tuple[str, int, str]]) -> tuple[Used, list[str]]:
    """Registers and spills of every kernel with an NVRTC, and what is wrong.

    ``logs`` has the messages for each data type and architecture.
    """
    from gcnmpi.kernels import cuda

    used: Used = {}
    failures = []
    for dtype, architecture, log in logs:
        found = {
            kernel: (int(registers), int(stores) + int(loads))
            for kernel, stores, loads, registers in _COMPILED.findall(log)
        }
        where = f"{name}, sm_{architecture}, {dtype}"
        missing = set(cuda.declarations()) - set(found)
        if missing:
            failures.append(f"{where}: not compiled: {', '.join(sorted(missing))}\n{log}")
        for kernel, (registers, spilled) in found.items():
            used.setdefault((kernel, dtype), {})[architecture] = registers, spilled
            if registers > MOST_REGISTERS or spilled:
                failures.append(
                    f"{where}: {kernel} takes {registers} registers, {spilled} bytes spilled"
                )
    most = max((r for of in used.values() for r, _ in of.values()), default=0)
    print(
        f"{name}: {len(used)} kernels × {len(ARCHITECTURES)} architectures, at most {most} "
        "registers"
    )
    return used, failures


def log_of(folder: Path, dtype: str, architecture: int) -> str:
    """The messages of the NVRTC in a folder about the kernels of a data type."""
    from gcnmpi.kernels import cuda

    library = ctypes.CDLL(str(next(folder.glob("nvidia/*/lib/libnvrtc.so.*"))))
    return compile_source(library, cuda.source(dtype), architecture)


def compile_source(library: ctypes.CDLL, source: str, architecture: int) -> str:
    """The messages of NVRTC and the assembler in it about a source."""
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
    words = (
        f"--gpu-architecture=sm_{architecture}",
        "--std=c++17",
        FROM_CUPY,
        "--ptxas-options=-v",
    )
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    library.nvrtcCompileProgram(program, len(words), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode()


def markdown(used: Used) -> str:
    """Registers of every kernel: a row each, float32/float64 for every architecture."""
    heads = [f"sm_{a}" for a in ARCHITECTURES]
    lines = ["| kernel | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for kernel in sorted({kernel for kernel, _ in used}):
        cells = [
            "/".join(str(used[kernel, dtype][a][0]) for dtype in ("float32", "float64"))
            for a in ARCHITECTURES
        ]
        lines.append(f"| `{kernel}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# CuPy.


def compared(wheel: str, folder: Path) -> list[str]:
    """Differences between the stand-in and a CuPy, which another process loads."""
    empty = CACHE / "empty-libraries"
    if not empty.is_dir():
        print(f"skipped: {wheel}: no C compiler makes the empty libraries that it is linked to")
        return []
    env = {**os.environ, "PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(empty)}
    program = ROOT / "scripts" / "compare_cupy.py"
    done = subprocess.run(
        [sys.executable, program, FROM_CUPY], env=env, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not lines:
        return [f"{wheel}: {done.stderr.strip()}"]
    print(f"{wheel}: {lines[-1]}")
    return [f"{wheel}: {line}" for line in lines[:-1]]


def make_empty_libraries() -> None:
    """Libraries that modules of CuPy can be linked to, where there is a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    empty = CACHE / "empty-libraries"
    if compiler is None or empty.is_dir():
        return
    staged = empty.with_name(f"{empty.name}.{os.getpid()}")
    staged.mkdir(parents=True)
    for name in LINKED:
        words = ["-shared", "-o", staged / name, f"-Wl,-soname,{name}", "-x", "c", os.devnull]
        subprocess.run([compiler, *words], check=True)
    staged.replace(empty)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
