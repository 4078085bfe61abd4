"""What a figure was measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

from layerscope.host import cpu
from layerscope.host.clock import tsc_is_usable


def describe(program_python: str) -> dict[str, str]:
    """CPU, memory, kernel, clock, versions and how busy the machine is now."""
    facts = cpu.facts()
    code = "import platform, torch; print(platform.python_version(), torch.__version__)"
    done = subprocess.run([program_python, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    python, torch = [*done.stdout.split(), "unknown", "unknown"][:2]
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{facts['cpu_model'] or platform.machine()}, {facts['cpus']:g} of {facts['cpus_online']} cores usable",
        "memory": f"{facts['memory_bytes'] / 2**30:.1f} GiB",
        "kernel": facts["kernel"],
        "clock": "TSC" if tsc_is_usable() else f"CLOCK_MONOTONIC ({_clock_source()})",
        "torch": f"{torch} (Python {python})",
        "our Python": platform.python_version(),
        "load": load(),
    }


def load() -> str:
    """The load averages: what else the machine was doing."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def _clock_source() -> str:
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return path.read_text().strip() if path.exists() else "unknown"
