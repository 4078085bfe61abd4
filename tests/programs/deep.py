"""600 ranges inside each other, and then operators outside of them."""

import quick_torch  # noqa: F401
from facts import work
from torch.profiler import record_function


def down(levels):
    if levels:
        with record_function(f"level {levels}"):
            down(levels - 1)


down(600)
work(7)
print("done")
