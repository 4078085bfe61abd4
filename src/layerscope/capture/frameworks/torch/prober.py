"""Answers the question of every recorded process: may the agent record with this build of torch?

The question comes with the process page, while the program is still importing torch; the answer is
written back into that page. The agent never waits for it.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from msgspec import Struct

from layerscope.capture.frameworks.torch import probe
from layerscope.host import elf
from layerscope.host.frameworks import package_version
from layerscope.model.events import Problem
from layerscope.model.frameworks.torch import FRAMEWORK
from layerscope.rawfile import layout
from layerscope.rawfile.page import ProcessPage

# The probe runs backward functions of small tensors one after the other; in a program each runs
# behind a kernel that has swept the caches. benchmarks/stated.py fits 2.1 to 3.7 us a backward span
# to three networks where the probe measures 0.95 to 1.0 (AMD EPYC, torch 2.13.0).
SWEPT_CACHES = 2.5
# Each page that is looked at until the end holds a descriptor, and a program may start many
# processes.
_MOST_WATCHED = 3
_LIBRARY = re.compile(FRAMEWORK.library)


class TorchProber:
    """Probes each library once and publishes the answer to all its processes."""

    def __init__(self, use_tsc: bool) -> None:
        self.problems: list[Problem] = []
        self.versions: dict[str, str] = {}
        self._use_tsc = use_tsc
        self._answers: dict[Path, probe.ProbeAnswer] = {}
        self._pages: list[tuple[Path, ProcessPage]] = []
        self._late: list[ProcessPage] = []  # of processes that do not record yet
        self._watched: list[_Watched] = []  # the first processes, for what they tell of oneDNN
        self._silent: list[
            tuple[ProcessPage, int]
        ] = []  # of processes that have named no library yet
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def take(self, fd: int, pid: int) -> None:
        """A process handed its page over in `fd`: answer it now if the answer is known."""
        page = ProcessPage(fd)
        self._silent.append((page, pid))
        self._ask_silent()

    def _ask_silent(self) -> None:
        """Ask for the libraries of the processes that have named one by now; those of other
        frameworks are not ours to answer.
        """
        silent, self._silent = self._silent, []
        for page, pid in silent:
            library = Path(page.text("library").decode("utf-8", "surrogateescape"))
            if not library.name:
                self._silent.append((page, pid))
            elif _LIBRARY.match(library.name):
                self._ask(library, page, pid)

    def _ask(self, library: Path, page: ProcessPage, pid: int) -> None:
        with self._lock:
            self._pages.append((library, page))
            self._late.append(page)
        try:
            python = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            python = ""
        # A program in C++ is never run to find out more.
        python = python if python and elf.facts(Path(python)).is_python else ""
        self._note_versions(python, library)
        if len(self._watched) < _MOST_WATCHED:
            self._watched.append(_Watched(library, python, page))
        if library in self._answers or any(thread.name == str(library) for thread in self._threads):
            self.publish()
            return
        answer = probe.known(library)
        if answer:
            self._answers[library] = answer
            self.publish()
        if answer is None or (answer.state == "good" and not answer.complete):
            thread = threading.Thread(
                target=self._probe, args=(library, python), name=str(library), daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _note_versions(self, python: str, library: Path) -> None:
        found = re.search(r"python(\d+\.\d+)", python)
        if found:
            self.versions["python"] = found[1]
        packages = library.parent.parent.parent
        torch = package_version(packages, "torch")
        if torch:
            self.versions["torch"] = torch

    def _probe(self, library: Path, python: str) -> None:
        answer = self._answers.get(library) or probe.ask(library)
        self._answers[library] = answer
        probe.keep(library, answer)
        self.publish()
        if answer.state == "good" and python:
            answer = probe.ask_with_python(python, library, answer, self._use_tsc)
            probe.keep(library, answer)

    def _ask_onednn(self) -> None:
        """Ask for the instruction set of each library that has been used, under the cap it was used
        with.
        """
        for one in self._watched:
            answer = self._answers.get(one.library)
            if not one.told or answer is None or answer.onednn in ("", "none"):
                continue
            key, name = probe.isa_key(one.cap), f"oneDNN {one.cap} {one.library}"
            if (
                key in answer.onednn_isa
                or not one.python
                or any(thread.name == name for thread in self._threads)
            ):
                continue
            thread = threading.Thread(
                target=self._probe_onednn, args=(one, answer, key), name=name, daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _probe_onednn(self, one: _Watched, answer: probe.ProbeAnswer, key: str) -> None:
        isa = probe.ask_onednn(one.python, one.library, one.cap)
        if isa:
            answer.onednn_isa = {**answer.onednn_isa, key: isa}
            probe.keep(one.library, answer)

    def _note_onednn(self) -> None:
        """What is known of oneDNN in the first process that had something to do for it, else in the
        first one.
        """
        one = next((one for one in self._watched if one.told), next(iter(self._watched), None))
        answer = self._answers.get(one.library) if one else None
        if one is None or answer is None or not answer.onednn:
            return
        self.versions["onednn"] = answer.onednn
        if answer.onednn == "none" or not one.told:
            return
        isa = answer.onednn_isa.get(probe.isa_key(one.cap), "")
        found = {"onednn_isa": isa, "onednn_max_cpu_isa": one.cap, "onednn_switch": one.switch}
        self.versions |= {name: text for name, text in found.items() if text}

    @property
    def is_waited_for(self) -> bool:
        """Whether a process waits for what is being found out."""
        return bool(self._pages)

    def publish(self) -> None:
        """Write what is known into the pages of the processes that asked."""
        self._ask_onednn()
        self._ask_silent()
        with self._lock:
            self._pages = [
                (library, page)
                for library, page in self._pages
                if not self._answered(library, page)
            ]
            # Each holds a descriptor, and a program may start many processes.
            self._late = [page for page in self._late if _may_be_late(page)]

    def _answered(self, library: Path, page: ProcessPage) -> bool:
        """Write what is known into one page; whether nothing more will come."""
        answer = self._answers.get(library)
        if answer is None:
            return False
        page.set("sequence_offset", answer.sequence_offset)
        page.set("forward_thread_offset", answer.forward_thread_offset)
        # Last: the agent reads the rest only after this.
        page.set("probe", layout.PROBE_GOOD if answer.state == "good" else layout.PROBE_REFUSED)
        return answer.complete or answer.state != "good"

    @property
    def span_costs_ns(self) -> tuple[float, float]:
        """What recording one span costs, as `probe.ProbeAnswer` has it; of several libraries the
        dearest.
        """
        answers = self._answers.values()
        operator_ns = max((answer.operator_cost_ns for answer in answers), default=0.0)
        backward_ns = max((answer.backward_cost_ns for answer in answers), default=0.0)
        return operator_ns, backward_ns * SWEPT_CACHES

    def finish(self) -> None:
        """The program has ended: wait for what is still being asked (it is kept for the next
        run).
        """
        self._ask_onednn()
        for thread in self._threads:
            thread.join(timeout=10)
        self._note_onednn()
        late = sum(map(_may_be_late, self._late))
        if late:
            self.problems.append(
                Problem(
                    "operators",
                    "probe_late",
                    f"{late} process{'es' if late > 1 else ''} imported PyTorch, and ended or "
                    "imported nothing more "
                    "before it was known whether this build of it can be recorded",
                    "record again: the answer is kept",
                    "operators of these processes",
                )
            )
        self.publish()
        for library, answer in self._answers.items():
            if answer.mkl:
                self.versions["mkl"] = answer.mkl
            if answer.state != "good":
                self.problems.append(
                    Problem(
                        "operators",
                        "torch_not_understood",
                        f"{library}: {answer.why}",
                        answer.remedy,
                        "operators of the processes that use it",
                    )
                )


class _Watched(Struct, frozen=True):
    """A process, and what its agent tells of oneDNN (native/agent/onednn.c)."""

    library: Path
    python: str
    page: ProcessPage

    @property
    def told(self) -> int:
        """The bits of its page; 0: it has called no operator that oneDNN could do."""
        return self.page.number("onednn")

    @property
    def cap(self) -> str:
        """What ONEDNN_MAX_CPU_ISA was set to; empty where it was not, or to what is no instruction
        set.
        """
        text = self.page.text("onednn_cap").decode("ascii", "replace").upper()
        return text if re.fullmatch(r"[A-Z0-9_]+", text) else ""

    @property
    def switch(self) -> str:
        """For what PyTorch was not to use it: "convolutions off, products on"; empty where it was
        on for all.
        """
        sorts = (
            ("convolutions", layout.ONEDNN_CONVOLUTION_ON, layout.ONEDNN_CONVOLUTION_OFF),
            ("products", layout.ONEDNN_PRODUCT_ON, layout.ONEDNN_PRODUCT_OFF),
        )
        parts = []
        for name, on, off in sorts:
            if self.told & on and self.told & off:
                parts.append(f"{name} at times")
            elif self.told & off:
                parts.append(f"{name} off")
            elif self.told & on:
                parts.append(f"{name} on")
        return ", ".join(parts) if any(not part.endswith(" on") for part in parts) else ""


def _may_be_late(page: ProcessPage) -> bool:
    """Whether a process that could record does not."""
    return page.number("probe") != layout.PROBE_REFUSED and not page.number("callbacks")
