"""Random numbers by purpose: known answers, a scalar reference, crude statistics."""

import numpy as np

from gcnmpi.core import rng

M32, M64 = 2**32 - 1, 2**64 - 1


def splitmix(x):
    """SplitMix64 (Steele, Lea and Flood 2014), one step from state x."""
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def scalar_hash(seed, epoch, layer, vertex, column):
    """The dropout hash of one entry, in Python's integers."""
    base = splitmix(splitmix(splitmix(seed) ^ epoch) ^ layer)
    row = splitmix((vertex * 0x9E3779B97F4A7C15 + base) & M64)
    x = (row & M32) ^ (splitmix(column) >> 32)
    x ^= x >> 16
    x = (x * rng.MIX1 + (row >> 32)) & M32
    x ^= x >> 15
    x = (x * rng.MIX2) & M32
    return x ^ (x >> 16)


def hashes(seed, epoch, layer, vertices, columns):
    rows, keys = rng.row_keys(seed, epoch, layer, vertices), rng.column_keys(columns)
    out = np.empty((len(rows), len(keys)), np.uint32)
    rng.hash_block(rows, keys, out, np.empty_like(out))
    return out


def test_splitmix_has_the_published_values():
    # The first three numbers of the generator with state 0.
    state, published = 0, (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    for value in published:
        assert splitmix(state) == value
        state = (state + 0x9E3779B97F4A7C15) & M64
    columns = np.array([0, 0x9E3779B97F4A7C15], np.uint64)
    assert rng.column_keys(columns).tolist() == [0xE220A839, 0x6E789E6A]


def test_every_hash_is_that_of_the_scalar_reference():
    for seed, epoch, layer in ((0, 1, 0), (1, 1, 0), (7, 200, 2), (2**63 - 1, 10**6, 30)):
        vertices = np.array([0, 1, 2, 1000, 2**31 - 1, 2**31, 2**40])
        columns = np.array([0, 1, 5, 63, 1432, 2**20])
        expected = [
            [scalar_hash(seed, epoch, layer, int(v), int(c)) for c in columns] for v in vertices
        ]
        np.testing.assert_array_equal(hashes(seed, epoch, layer, vertices, columns), expected)


def test_hashes_never_change():
    """Known answers: a run of an older version must be repeatable, and a GPU must agree."""
    found = hashes(42, 3, 1, np.array([0, 1, 99]), np.array([0, 1])).tolist()
    assert found == [[3430199384, 3030134421], [386332588, 3240458253], [4016149809, 2463433816]]


def test_the_threshold_at_its_ends():
    assert rng.threshold(0.0) == 0  # nothing is below it: nothing is dropped
    assert rng.threshold(0.5) == 2**31
    assert rng.threshold(0.25) == 2**30
    assert rng.threshold(1 - 2**-40) == 2**32 - 1  # no overflow to 0
    assert rng.threshold(2**-32) == 1
    assert all(rng.threshold(p).dtype == np.uint32 for p in (0.0, 0.1, 0.999))


def test_glorot_depends_on_seed_and_layer_only():
    weights = rng.glorot(0, 1, 300, 50)
    bound = np.sqrt(6 / 350)
    assert weights.shape == (300, 50)
    assert weights.dtype == np.float64
    assert np.abs(weights).max() <= bound
    assert np.abs(weights).max() > 0.99 * bound
    assert abs(weights.mean()) < 5 * bound / np.sqrt(3 * weights.size)
    assert abs(weights.std() * np.sqrt(3) / bound - 1) < 0.02
    np.testing.assert_array_equal(rng.glorot(0, 1, 300, 50), weights)
    for seed, layer in ((1, 1), (0, 2)):
        assert (rng.glorot(seed, layer, 300, 50) != weights).all()
    # Known answers, NumPy's Philox: the same for all versions of this program.
    np.testing.assert_allclose(
        rng.glorot(0, 1, 2, 2).ravel(),
        [0.7675575582283878, 0.6156337478419487, 0.42045257189433904, -0.041337637944671046],
        rtol=1e-15,
    )
