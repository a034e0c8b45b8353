"""Programs without a start: a server that has imported everything forks a process for each.

Usage: warm.py SOCKET, the server; warm.py SOCKET PROGRAM WORDS…, for ``python -m PROGRAM WORDS…``,
or ``python PROGRAM WORDS…`` where the program is a file, whose standard streams, folder,
environment and exit code it has. The start itself, a second of imports, is tested where programs
are launched without it; so is what libraries read from the environment when they are loaded.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys  # and nothing else that the client, of which there are many, does not need

PACKAGES = ("gcnmpi", "partition")
NOT_IMPORTED = {"torch", "cuda", "__main__"}  # what needs a package that is large, or not there


def import_all() -> None:
    """Import the modules of both packages, but those of tools that are not installed.

    And what takes a third of a second later: PyArrow looks for pandas before it hands out its first
    array, and Numba reads its tables before the first function that it has compiled.
    """
    from importlib import import_module
    from importlib.util import find_spec
    from pathlib import Path

    for package in PACKAGES:
        file = find_spec(package).origin
        for path in sorted(Path(file).parent.rglob("*.py")):
            words = path.relative_to(Path(file).parents[1]).with_suffix("").parts
            if not NOT_IMPORTED.intersection(words):
                with contextlib.suppress(ImportError):
                    import_module(".".join(words).removesuffix(".__init__"))
    with contextlib.suppress(ImportError):
        import_module("pandas")
    target = import_module("numba.core.registry").cpu_target
    target.typing_context.refresh()
    target.target_context.refresh()


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
    import gc

    import_all()
    gc.freeze()  # the memory of what is imported stays shared
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


def execute(program: str, words: list[str]) -> None:
    """Be the program, which finds modules where it would: beside its file, and in PYTHONPATH."""
    sys.argv = [program, *words]
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if program == "gcnmpi":
        from gcnmpi.cli.main import main
    elif program == "gcn-partition":
        from partition.cli.main import main
    else:
        import runpy

        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")
        return
    main()


if __name__ == "__main__":
    _, socket_path, *asked = sys.argv
    if asked:
        sys.exit(ask(socket_path, asked[0], asked[1:]))
    execute(*serve(socket_path))
