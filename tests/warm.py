"""Command lines without a start: a server that has imported everything forks a process for each.

Usage: warm.py SOCKET, the server; warm.py SOCKET PROGRAM WORDS…, for ``python -m PROGRAM WORDS…``,
whose standard streams, folder, environment and exit code it has. The start itself, a second of
imports, is tested where programs are launched without it.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module

IMPORTED = (
    "numpy.linalg", "scipy.sparse.linalg", "scipy.special", "rich.progress",
    "partition.cli.comparing", "partition.cli.importing", "partition.cli.make",
    "partition.cli.synth", "partition.importing.readers", "partition.pipeline.adding",
    "gcnmpi.api.training", "gcnmpi.cli.bench", "gcnmpi.cli.cluster", "gcnmpi.cli.info",
    "gcnmpi.cli.propagate", "gcnmpi.cli.repeated", "gcnmpi.cli.schemes", "gcnmpi.mpi.process",
    "gcnmpi.kernels.native.kernel", "gcnmpi.nn.compile", "gcnmpi.nn.model", "gcnmpi.planner.auto",
    "gcnmpi.proof.verify", "gcnmpi.report.table", "gcnmpi.run.training", "gcnmpi.schemes.p2p",
)  # fmt: skip


def ask(path: str, program: str, words: list[str]) -> int:
    """The exit code of the program; if this process ends first, that one is killed."""
    asked = json.dumps([program, words, os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(asked)
        answer = server.recv(1)
    return answer[0] if answer else 1


def serve(path: str) -> tuple[str, list[str]]:
    """Answer while the parent lives; in a process that is to run a program, return it."""
    for name in IMPORTED:
        import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen(64)
    os.rename(f"{path}.new", path)
    listener.settimeout(5)
    parent = os.getppid()
    while os.getppid() == parent:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        with contextlib.suppress(TimeoutError):
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return begin(client)
            client.close()
    sys.exit()


def begin(client: socket.socket) -> tuple[str, list[str]]:
    """Fork the process that is to run the program, where this returns; here, wait for its end."""
    length, streams, _, _ = socket.recv_fds(client, 8, 3)
    with client.makefile("rb") as stream:
        program, words, folder, environment = json.loads(stream.read(int.from_bytes(length, "big")))
    process = os.fork()
    if process == 0:
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return program, words
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(process)
    readable, _, _ = select.select([client, ended], [], [])
    if ended not in readable:
        os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if client not in readable:
        client.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


if __name__ == "__main__":
    _, socket_path, *asked = sys.argv
    if asked:
        sys.exit(ask(socket_path, asked[0], asked[1:]))
    program, words = serve(socket_path)
    sys.argv = [program, *words]
    if program == "gcnmpi":
        from gcnmpi.cli.main import main
    else:
        from partition.cli.main import main
    main()
