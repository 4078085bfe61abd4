"""What the numbers of CUPTI mean, named as Kineto names it. Used by `nsys` and `nvprof`."""

from __future__ import annotations

import re

# Kinds of copies and of memory, and of what waits (CUpti_ActivityMemcpyKind,
# CUpti_ActivityMemoryKind, CUpti_ActivitySynchronizationType).
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device Static",
    7: "Managed Static",
}
SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
# CUpti_ActivityOverheadKind.
OVERHEADS = {
    1: "Driver compiler",
    1 << 16: "Buffer flush",
    2 << 16: "Instrumentation",
    3 << 16: "Resource",
}
# Numbers of functions as CUPTI has had them since CUDA 3.2, by the first one of a row of names
# that follow each other; after `cuda` and `cu`.
_RUNTIME_CALLS = {
    1: "DriverGetVersion RuntimeGetVersion GetDeviceCount GetDeviceProperties ChooseDevice",
    8: "ConfigureCall SetupArgument GetLastError PeekAtLastError GetErrorString Launch",
    14: "FuncSetCacheConfig FuncGetAttributes SetDevice GetDevice SetValidDevices SetDeviceFlags",
    20: "Malloc MallocPitch Free MallocArray FreeArray MallocHost FreeHost HostAlloc",
    28: "HostGetDevicePointer HostGetFlags MemGetInfo Memcpy Memcpy2D MemcpyToArray",
    34: "Memcpy2DToArray MemcpyFromArray Memcpy2DFromArray MemcpyArrayToArray",
    38: "Memcpy2DArrayToArray MemcpyToSymbol MemcpyFromSymbol MemcpyAsync MemcpyToArrayAsync",
    43: "MemcpyFromArrayAsync Memcpy2DAsync Memcpy2DToArrayAsync Memcpy2DFromArrayAsync",
    47: "MemcpyToSymbolAsync MemcpyFromSymbolAsync Memset Memset2D MemsetAsync Memset2DAsync",
    53: "GetSymbolAddress GetSymbolSize BindTexture BindTexture2D BindTextureToArray UnbindTexture",
    123: "ThreadExit",
    126: "ThreadSynchronize",
    129: "StreamCreate StreamDestroy StreamSynchronize StreamQuery EventCreate",
    134: "EventCreateWithFlags EventRecord EventDestroy EventSynchronize EventQuery",
    139: "EventElapsedTime Malloc3D Malloc3DArray Memset3D Memset3DAsync Memcpy3D Memcpy3DAsync",
    147: "StreamWaitEvent",
    151: "PointerGetAttributes HostRegister HostUnregister DeviceCanAccessPeer",
    155: "DeviceEnablePeerAccess DeviceDisablePeerAccess",
    160: "MemcpyPeer MemcpyPeerAsync Memcpy3DPeer Memcpy3DPeerAsync DeviceReset DeviceSynchronize",
    166: "DeviceGetLimit DeviceSetLimit DeviceGetCacheConfig DeviceSetCacheConfig",
    170: "ProfilerInitialize ProfilerStart ProfilerStop DeviceGetByPCIBusId DeviceGetPCIBusId",
    176: "IpcGetEventHandle IpcOpenEventHandle IpcGetMemHandle IpcOpenMemHandle IpcCloseMemHandle",
    197: "StreamAddCallback StreamCreateWithFlags",
    200: "DeviceGetAttribute StreamDestroy StreamCreateWithPriority StreamGetPriority",
    204: "StreamGetFlags DeviceGetStreamPriorityRange MallocManaged",
    207: "OccupancyMaxActiveBlocksPerMultiprocessor StreamAttachMemAsync GetErrorName",
    210: "OccupancyMaxActiveBlocksPerMultiprocessor LaunchKernel GetDeviceFlags Launch",
    214: "LaunchKernel",
    215: "Memcpy Memcpy2D",
    225: "MemcpyAsync",
    233: "Memset Memset2D MemsetAsync Memset2DAsync",
    239: "StreamSynchronize StreamQuery StreamAttachMemAsync EventRecord",
    247: "StreamWaitEvent StreamAddCallback",
    251: "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags MemPrefetchAsync MemPrefetchAsync",
    254: "MemAdvise DeviceGetP2PAttribute",
    266: "MemRangeGetAttribute MemRangeGetAttributes",
    269: "LaunchCooperativeKernel LaunchCooperativeKernel",
    272: "LaunchCooperativeKernelMultiDevice FuncSetAttribute",
}
_DRIVER_CALLS = {
    1: "Init DriverGetVersion DeviceGet DeviceGetCount DeviceGetName DeviceComputeCapability",
    7: "DeviceTotalMem DeviceGetProperties DeviceGetAttribute CtxCreate CtxDestroy",
    18: "CtxSynchronize",
    259: "DeviceTotalMem",
    307: "LaunchKernel",
}
_VERSION = re.compile(r"(_ptsz|_ptds)?_v\d+$")


def called(name: str) -> str:
    """A function without the version of its interface."""
    return _VERSION.sub("", name)


def copy_name(kind: int, source: int, target: int) -> str:
    """What a copy is called; the numbers are those of CUPTI."""
    what = COPY_KINDS.get(kind, "Unknown")
    if source not in MEMORY_KINDS and target not in MEMORY_KINDS:
        return f"Memcpy {what}"
    ends = [MEMORY_KINDS.get(one, "Unknown") for one in (source, target)]
    return f"Memcpy {what} ({' -> '.join(ends)})"


def fill_name(kind: int) -> str:
    """What a fill of memory is called."""
    return f"Memset ({MEMORY_KINDS.get(kind, 'Unknown')})"


def _by_number(prefix: str, rows: dict[int, str]) -> dict[int, str]:
    found = {}
    for first, names in rows.items():
        for number, name in enumerate(names.split(), first):
            found[number] = prefix + name
    return found


_RUNTIME = _by_number("cuda", _RUNTIME_CALLS)
_DRIVER = _by_number("cu", _DRIVER_CALLS)


def runtime_call(number: int) -> str:
    """A function of the runtime by its number."""
    return _RUNTIME.get(number) or f"cuda call {number}"


def driver_call(number: int) -> str:
    """A function of the driver by its number."""
    return _DRIVER.get(number) or f"cu call {number}"
