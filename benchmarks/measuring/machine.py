"""What a figure was measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess

from layerscope.host import cpu, memory
from layerscope.host.clock import tsc_is_usable


def describe(program_python: str) -> dict[str, str]:
    """CPU, memory, kernel, clock, versions and how busy the machine is now."""
    here = cpu.facts()
    code = "import platform, torch; print(platform.python_version(), torch.__version__)"
    done = subprocess.run(
        [program_python, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    python, torch = [*done.stdout.split(), "unknown", "unknown"][:2]
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{here.model or platform.machine()}, {here.granted:g} of {len(here.online)} cores "
        "usable",
        "memory": f"{(memory.facts().total_bytes or 0) / 2**30:.1f} GiB",
        "kernel": platform.release(),
        "clock": "TSC" if tsc_is_usable() else f"CLOCK_MONOTONIC ({here.clocksource or 'unknown'})",
        "torch": f"{torch} (Python {python})",
        "our Python": platform.python_version(),
        "load": load(),
    }


def load() -> str:
    """The load averages: what else the machine was doing."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())
