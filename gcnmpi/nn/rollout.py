"""A network of one step in time is applied to its own results: one network, of all steps.

::

    H⁰ ─ [static | frames] ─ network ─ ŷ₁ ──────────────────────────────────┐
              └───── [static | later frames | ŷ₁ | given] ─ network ─ ŷ₂ ───┴─ [ŷ₁ | ŷ₂]

All steps have the same parameters, whose gradients are added. Dropout draws other numbers in each
step; a batch norm takes the moments of each step, and its running ones move once in each, as those
of a module of PyTorch that is called so often.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.options.frames import Frames


def rolled_out(network: Network, frames: Frames) -> Network:
    """The network that gives all predicted frames, of one that gives those of one step.

    ``network`` reads ``frames.step.features`` columns and gives ``frames.step.outputs``: the
    predicted columns of the next frames, or, with ``frames.difference``, what they differ by from
    the last one that it reads. Later steps read what earlier ones predict, beside the given columns
    of that time. With ``frames.rollout_gradient`` "last" that counts as given too: the sum of the
    losses of all steps is the one-step loss and the stability loss of Brandstetter, Worrall and
    Welling 2022 (equation 7, the pushforward trick), of all numbers of steps up to ``rollout``.

    A rollout of one step without differences is the network itself.
    """
    if frames.rollout == 1 and not frames.difference:
        return network
    b, predicted = Builder(frames.features), frames.predicted
    read, made = frames.static + frames.history * frames.columns, dict[int, int]()
    static = _some(b, 0, frames.static)
    last = b.columns(b.input, read - frames.columns, predicted)
    x, fed, results = b.columns(b.input, 0, read), list[int](), list[int]()
    for step in range(frames.rollout):
        *hidden, y = b.apply(network, x, step, made)
        if frames.difference:
            y = b.add(b.join([last] * frames.horizon), y)
        results.append(y)
        if step + 1 == frames.rollout:
            break
        last = b.stop_gradient(y) if frames.rollout_gradient == "last" else y
        given = _some(b, read + step * frames.given, frames.given)
        fed.append(b.join([last, *given]))
        first = frames.static + (step + 1) * frames.columns
        x = b.join([*static, *_some(b, first, read - first), *fed[-frames.history :]])
    for value in (*hidden, b.join(results)):
        b.output(value)
    return b.build()


def _some(b: Builder, first: int, width: int) -> list[int]:
    """So many columns of the features, if any."""
    return [b.columns(b.input, first, width)] if width > 0 else []
