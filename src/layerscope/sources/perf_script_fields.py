"""The fields that perf script prints of a sample, and the kinds of samples."""

from __future__ import annotations

from layerscope.model.layers import SAMPLE_KINDS

OTHER_RECORD = b" PERF_RECORD_"
CPU, OFFCPU, FAULT = map(SAMPLE_KINDS.index, ("cpu", "offcpu", "fault"))
FIELDS = ("comm", "pid", "tid", "second", "fraction", "period", "event", "tail")
