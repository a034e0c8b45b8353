"""Offline partitioning of graphs: which rank owns which rows.

Serial, and free of MPI. The trainer (package ``gcnmpi``) imports from here only
``errors``, ``commands``, ``registry``, ``locks``, ``records``, ``startup``, ``graph``, ``store``,
``metrics``, ``sampling``, ``synthetic`` and ``catalogue``.
"""
