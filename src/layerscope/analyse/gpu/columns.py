"""The columns by which the tables of GPUs say where something ran."""

from __future__ import annotations

from layerscope.analyse.result import ResultColumn

RANK = ResultColumn("rank", "int32", "", "number in the job")
DEVICE = ResultColumn("device", "int32", "", "number of the GPU")
STREAM = ResultColumn("stream", "string", "", "name of the stream")
