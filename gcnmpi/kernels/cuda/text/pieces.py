"""CUDA source of what is found of the entries of each row of a pattern, or of each column.

Rows are cut into **pieces** of at most ``PIECE`` entries. Threads next to each other have numbers
of a row next to each other; each goes through a piece by itself, in the order of the entries, and
comes to a **state**: a sum, a maximum and its place. A row of one piece is finished there. The
states of pieces of longer rows go to scratch memory, where they are entries of the next **level**,
which is another launch of the same kernel. Nothing depends on the order in which threads run.
Offsets have 64 bits, numbers of rows and columns 32.
"""

from __future__ import annotations

PIECE = 128

# Parameters of a kernel that folds pieces, and what `fold` gets of them.
_WORDS = {
    "@PIECES@": "const I* pieces, I level, I open, I base, T* scratch",
    "@GIVEN@": "pieces, level, open, base, scratch, p, j, columns",
    "@MINE@": "const I p = ROW, j = COLUMN;\n  if (p >= rows || j >= columns) return;",
}


def written(source: str, **words: str) -> str:
    """A source with words in place of ``@NAME@``, and what kernels of pieces have in common."""
    for name, text in {**{f"@{k}@": v for k, v in words.items()}, **_WORDS}.items():
        source = source.replace(name, text)
    return source


KERNELS = r"""
struct alignas(16) Piece { I start; S32 length, row; };

// States of `open` pieces, the first ones, are not the end: they go to places from `base` on. Of
// these, a thread reads AT_ONCE before it adds them.
template <class State, class Entries, class Finish>
static DEVICE void fold(
    const I* pieces, I level, I open, I base, T* scratch, I p, I j, I columns, Entries entries,
    Finish finish) {
  const Piece piece = ((const Piece*)pieces)[p];
  State* const states = (State*)scratch + j;
  State state;
  if (level) {
    state = states[piece.start * columns];
    _Pragma("unroll State::AT_ONCE") for (S32 k = 1; k < piece.length; ++k) {
      const State next = states[(piece.start + k) * columns];
      state.add(next);
    }
  } else {
    state = entries(piece);
  }
  if (p < open) states[(base + p) * columns] = state;
  else finish((I)piece.row, state);
}

// The same, where entries get something of the state of their row: those of a row of one piece at
// once, those of longer rows, whose states are in scratch memory from `whole` on, in a last launch.
template <class State, class Entries, class Spread>
static DEVICE void fold_back(
    const I* pieces, I level, I open, I base, T* scratch, I p, I j, I columns, I whole,
    Entries entries, Spread spread) {
  const Piece piece = ((const Piece*)pieces)[p];
  State* const states = (State*)scratch + whole * columns + j;
  if (level < 0) return spread(piece, states[piece.row * columns]);
  fold<State>(pieces, level, open, base, scratch, p, j, columns, entries, [&](I i, State state) {
    if (level) states[i * columns] = state;
    else spread(piece, state);
  });
}

// Four entries at a time: their places in other rows, the numbers there, and `take` in their order.
// The next places are looked up before these numbers have come.
template <class Source, class Load, class Take>
static DEVICE void gather(Piece piece, Source source, Load load, Take take) {
  typedef decltype(source((I)0)) At;
  At next[4] = {};
  UNROLL for (int u = 0; u < 4; ++u) if (u < piece.length) next[u] = source(piece.start + u);
  for (S32 k = 0; k < piece.length; k += 4) {
    const I e = piece.start + k;
    const S32 left = piece.length - k;
    At at[4];
    decltype(load((I)0, (I)0)) loaded[4] = {};
    UNROLL for (int u = 0; u < 4; ++u) {
      at[u] = next[u];
      if (u + 4 < left) next[u] = source(e + u + 4);
    }
    UNROLL for (int u = 0; u < 4; ++u) if (u < left) loaded[u] = load(e + u, (I)at[u]);
    UNROLL for (int u = 0; u < 4; ++u) if (u < left) take(loaded[u]);
  }
}

template <int N> struct alignas(N * sizeof(T)) Numbers {
  enum { AT_ONCE = 4 };
  T at[N];
  DEVICE void add(const Numbers& other) {
    UNROLL for (int k = 0; k < N; ++k) at[k] += other.at[k];
  }
};

template <int N> struct Weighed { T weight; Numbers<N> numbers; };
"""
