"""Time that is summed up by bucket: how much of an interval lies in which one."""

from __future__ import annotations

import numpy as np

from layerscope.model.live import BUCKET_BITS, BUCKET_NS, buckets_of


def oldest_bucket(until_ns: int, keep_ns: int) -> int:
    """The bucket that stands for all time before the window of the last `keep_ns`."""
    return max((until_ns >> BUCKET_BITS) - buckets_of(keep_ns) - 1, 0)


class Spread:
    """Intervals of time, cut at the ends of buckets; what lies before the bucket `oldest` counts
    in that one.

    Of each piece `row`, the interval that it is of; `bucket`; `is_last`, whether it is the end of
    its interval.
    """

    def __init__(self, begin_ns: np.ndarray, end_ns: np.ndarray, oldest: int) -> None:
        first = np.maximum(begin_ns >> BUCKET_BITS, oldest)
        last = (end_ns - 1) >> BUCKET_BITS
        last = np.maximum(last, first)
        count = last - first + 1
        every = np.arange(len(count))
        self.row = np.repeat(every, count)
        before = np.cumsum(count) - count
        number = np.arange(len(self.row))
        number -= before[self.row]
        self.bucket = first[self.row] + number
        self.is_last = self.bucket == last[self.row]
        self._is_first = number == 0
        self._share = self._shares(begin_ns, end_ns)

    def _shares(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Of each piece which part of its interval is over where it ends."""
        dur_ns = np.maximum(end_ns - begin_ns, 1)
        until_ns = self.bucket + 1
        until_ns *= BUCKET_NS
        until_ns -= begin_ns[self.row]
        share: np.ndarray = until_ns / dur_ns[self.row]
        share[self.is_last] = 1.0
        return share

    def parts(self, weights: np.ndarray) -> np.ndarray:
        """Of each piece what it has of the weight of its interval: together they have all of it."""
        until = np.rint(weights[self.row] * self._share).astype(np.int64)
        before = np.append(0, until[:-1])
        before[self._is_first] = 0
        found: np.ndarray = until - before
        return found
