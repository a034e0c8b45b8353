import sys
sys.path.insert(0, "/work/w/columns/tests/mpi")
import pytest
from test_schemes import check_schemes
@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 5])
def test_it(verified, schemes_folder, nranks):
    check_schemes(verified, schemes_folder, nranks, modules=["cases_columns"])
