"""Offline partitioning of graphs: which rank owns which rows.

Serial, and free of MPI. The trainer (package ``gcnmpi``) imports from here only the modules that
lie in no room, the room ``graph``, ``importing.synthetic`` and ``backends.catalogue``.
"""
