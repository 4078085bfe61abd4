"""What each block is for: a parameter, a gradient, an activation and so on.

No allocator says it. It follows from who allocated the block, when, and how long it lived:

parameter        a tensor allocated before the first forward pass of a step, live after the last
                 step, and of the size of a gradient; without any gradients (inference, or gradients
                 that share one block) every such tensor. Certain
                 where there are no more of them of this size than gradients in one backward pass.
                 Of more, those are it whose lines made parameters of other sizes
gradient         allocated in a backward pass and live after it. Certain if a parameter has its size
optimizer state  allocated by the optimizer and live after its step. Certain if a parameter has its
                 size and it is live after the last step
activation       a result of the forward pass or of the loss that is live when the backward pass of
                 its step begins. Certain if a module made it and it ends in that pass; likely if it
                 is released by the end of the next step, as the loss is, which a variable names
                 until then. A checkpoint makes them again in the backward pass: likely. Without a
                 backward pass (inference) every result of the forward pass
input            allocated while data was loaded, and live when that is over, which is certain; or
                 in a step before its forward pass, or between requests, and live when that pass or
                 the next request begins, until the end of the next step at the latest
buffer           allocated before the first forward pass and live after the last step, but not of
                 the size of a gradient: buffers of modules, parameters that are not trained, data
                 that is kept
temporary        released in the phase in which it was allocated: workspaces and results that
                 nothing needs afterwards. Certain within a step. After the last step, and where
                 there are none, all that was released and was not made in a forward pass
other            the rest: what the program keeps, as caches do, or leaks

Of a block of the last two steps nobody can see how long it would have lived. It is what most blocks
of the same line, operator and module were in the steps before. Blocks that were allocated
before the recording began are not known at all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.memory.blocks import Blocks, Bools, Int64s, Steps
from layerscope.analyse.memory.grouping import grouped_by
from layerscope.analyse.memory.phases import NEVER, Passes, PhaseSpans, counted_until, passes_of
from layerscope.model.distinct import distinct
from layerscope.model.memory import TENSOR

# In the order in which people read them.
CATEGORIES = (
    "parameter",
    "gradient",
    "optimizer state",
    "activation",
    "buffer",
    "temporary",
    "input",
    "other",
)
PARAMETER, GRADIENT, STATE, ACTIVATION, BUFFER, TEMPORARY, INPUT, OTHER = range(len(CATEGORIES))
# Blocks of so many steps at the end have not lived long enough to be judged, and blocks of so many
# steps before them show what they are.
CUT_STEPS = 2
_EXAMPLE_STEPS = 20
# Gradients of so many steps show which sizes parameters have.
FIRST_STEPS = 2


class Categories(Struct):
    """Of each block its place in `CATEGORIES`, and whether that is certain. `passes`: the backward
    passes that they were compared with.
    """

    category: NDArray[np.int8]
    is_certain: Bools
    passes: Passes


def categories_of(blocks: Blocks, steps: Steps, spans: PhaseSpans) -> Categories:
    """The categories of blocks of one process and device."""
    if not len(steps.step):
        steps = _one_step(blocks, spans)
    rules = _Rules(blocks, steps, passes_of(spans, blocks, steps))
    rules.apply()
    _as_before(rules)
    _certain_by_size(rules)
    return rules.found


def gradients_of_one_pass(found: Categories, blocks: Blocks) -> Int64s:
    """The places of the gradients that came of one backward pass, the one with most of them."""
    rows = np.flatnonzero(found.category == GRADIENT)
    if not len(rows):
        return rows
    of_pass = np.searchsorted(found.passes.begin_ns, blocks.at_ns[rows], side="right")
    sums = np.bincount(of_pass, weights=blocks.bytes[rows])
    of_largest: Int64s = rows[of_pass == np.argmax(sums)]
    return of_largest


def _one_step(blocks: Blocks, spans: PhaseSpans) -> Steps:
    """Of a process without steps all that has a phase, as one step."""
    has_phase = ~blocks.has_name("phase", "other")
    in_phase = blocks.at_ns[has_phase]
    forward = spans.forward
    at_ns = np.concatenate([in_phase, forward.start_ns])
    ends_ns = np.concatenate([at_ns + 1, forward.end_ns, spans.backward.end_ns])
    steps = min(len(at_ns), 1)
    number = np.zeros(steps, np.int64)
    first_ns = at_ns.min(initial=NEVER)
    last_ns = ends_ns.max(initial=0)
    start_ns = number + first_ns
    end_ns = number + last_ns
    return Steps(
        step=number,
        start_ns=start_ns,
        end_ns=end_ns,
        is_warmup=number > 0,
    )


class _Rules:
    """The rules, over the moments that they compare with; the first that holds for a block says
    what it is.
    """

    def __init__(self, blocks: Blocks, steps: Steps, passes: Passes) -> None:
        count = len(blocks)
        self.blocks, self.steps, self.passes = blocks, steps, passes
        nothing = np.zeros(count, np.bool_)
        self.found = Categories(np.full(count, OTHER, np.int8), nothing, passes)
        self.is_free = ~nothing
        # The last step is over and the block is there. What is kept until then is kept for good:
        # when Python ends, everything is released.
        self.lives_on: Bools = blocks.end_ns > steps.last_end_ns
        self.forward = blocks.has_name("phase", "forward")
        self.backward = blocks.has_name("phase", "backward")
        self.optimizer = blocks.has_name("phase", "optimizer")
        self.loading = blocks.has_name("phase", "loading")
        self.place = steps.places_at(blocks.at_ns)
        self.in_step = self.place >= 0
        self.begun = counted_until(blocks.at_ns, passes.begin_ns)
        self.ended = counted_until(blocks.at_ns, passes.end_ns)
        self.before_loop = blocks.at_ns < _loop_ns(steps, passes)
        # Of what lies in no step, the step that comes next.
        next_place = np.searchsorted(steps.start_ns, blocks.at_ns, side="right")
        last_ns = steps.last_end_ns
        own_ns = _or_last(steps.end_ns, 0, self.place)
        outside_ns = _or_last(steps.start_ns, last_ns, next_place)
        self.until_ns = np.where(self.in_step, own_ns, outside_ns)
        self.next_until_ns = _or_last(steps.end_ns, last_ns, next_place)
        self.next_start_ns = _or_last(steps.start_ns, NEVER, next_place)
        # Until then a variable may name what the next step replaces.
        behind_next = np.minimum(next_place + 1, len(steps.step))
        behind_ns = _or_last(steps.start_ns, last_ns, behind_next)
        self.replaced_ns = np.maximum(behind_ns, self.next_until_ns)
        self.is_after = next_place == len(steps.step)
        self.is_after &= ~self.in_step

    def apply(self) -> None:
        """All of them, in their order."""
        end_ns = self.blocks.end_ns
        soon, by_next = end_ns <= self.until_ns, end_ns <= self.next_until_ns
        self._backward()
        self._say(self.optimizer & soon, TEMPORARY, self.in_step)
        self._say(self.optimizer & (self.in_step | self.lives_on), STATE)
        self._before_the_loop()
        self._say(self.loading & by_next & self._is_loaded(), INPUT, self.loading)
        if len(self.passes):
            self._training(by_next)
        else:
            self._inference()
        self._say(self.forward & ~self.in_step & by_next, ACTIVATION)
        self._say(soon, TEMPORARY)
        # Of what came after the last step nobody knows more than that it was released.
        is_over = self.is_after & ~self.blocks.is_open
        self._say(is_over & self.forward, ACTIVATION)
        self._say(is_over, TEMPORARY)

    def _say(self, chosen: Bools, category: int, is_certain: Bools | None = None) -> None:
        """Those of the chosen ones that have no category yet are in this one."""
        rows = np.flatnonzero(chosen & self.is_free)
        self.found.category[rows] = category
        if is_certain is not None:
            self.found.is_certain[rows] = is_certain[rows]
        self.is_free[rows] = False

    def _backward(self) -> None:
        inside = self.begun > self.ended
        # Of those inside the pass that began last.
        pass_end_ns = _or_last(self.passes.end_ns, NEVER, self.begun - 1)
        outlives = self.blocks.end_ns > pass_end_ns
        self._say(self.backward & inside & outlives, GRADIENT)
        is_again = inside & ~outlives
        is_again &= self.forward | self._is_called_again()
        self._say(is_again, ACTIVATION)
        self._say(self.backward, TEMPORARY, inside)

    def _is_called_again(self) -> Bools:
        """Whether a module was open, which in a backward pass only a checkpoint calls again, and
        the block is there when that call ends.
        """
        blocks, passes = self.blocks, self.passes
        calls = counted_until(blocks.at_ns, passes.call_ns)
        end_ns = _or_last(passes.call_end_ns, 0, calls - 1)
        is_open = blocks.module >= 0
        is_open &= blocks.at_ns < end_ns
        outlives: Bools = blocks.end_ns > end_ns
        return is_open & outlives

    def _is_loaded(self) -> Bools:
        """Whether it is there when the call of the loader that allocated it ends; true where no
        such call is known.
        """
        blocks, passes = self.blocks, self.passes
        calls = counted_until(blocks.at_ns, passes.load_ns)
        end_ns = _or_last(passes.load_end_ns, 0, calls - 1)
        is_inside = blocks.at_ns < end_ns
        outlives: Bools = ~is_inside | (blocks.end_ns > end_ns)
        return outlives

    def _before_the_loop(self) -> None:
        early = self.before_loop & self.lives_on
        is_parameter = early & self.blocks.has_name("allocator", TENSOR)
        is_gradient = self.found.category == GRADIENT
        if is_gradient.any():
            sizes = distinct(self.blocks.bytes[is_gradient])
            is_parameter &= np.isin(self.blocks.bytes, sizes)
        self._say(is_parameter, PARAMETER)
        self._say(early, BUFFER)

    def _training(self, by_next: Bools) -> None:
        """What lies before a backward pass of its step: an input, what that pass needs, or what not
        even the forward pass kept.
        """
        passes = self.passes
        end_ns = self.blocks.end_ns
        step_of_pass = self.steps.places_at(passes.begin_ns)
        is_in_step = _or_last(step_of_pass, -1, self.begun) == self.place
        has_pass = self.in_step & is_in_step
        forward_ns = _or_last(passes.first_forward_ns, NEVER, self.begun)
        is_early = has_pass & ~self.forward
        is_early &= self.blocks.at_ns < forward_ns
        is_input = is_early & (end_ns > forward_ns)
        self._say(is_input & by_next, INPUT)
        is_short = end_ns <= _or_last(passes.begin_ns, NEVER, self.begun)
        self._say(has_pass & is_short, TEMPORARY, has_pass)
        in_pass = end_ns <= _or_last(passes.end_ns, NEVER, self.begun)
        is_kept = has_pass & ~is_input
        is_kept &= in_pass | by_next
        self._say(is_kept, ACTIVATION, in_pass & self.forward)

    def _inference(self) -> None:
        """No backward pass keeps anything."""
        is_replaced = self.blocks.end_ns <= self.replaced_ns
        in_step = self.in_step & is_replaced
        self._say(self.forward & in_step, ACTIVATION)
        forward_ns = self.passes.forward_ns
        first = np.searchsorted(forward_ns, self.steps.start_ns, side="left")
        of_steps_ns = _or_last(forward_ns, NEVER, first)
        first_ns = _or_last(of_steps_ns, NEVER, self.place)
        is_early = self.blocks.at_ns < first_ns
        is_used = self.blocks.end_ns > first_ns
        self._say(in_step & is_early & is_used, INPUT)
        # Made between two requests for the next one.
        is_between = ~self.in_step & ~self.forward & is_replaced
        self._say(is_between & (self.blocks.end_ns > self.next_start_ns), INPUT)


def _or_last(values: Int64s, last: int, places: Int64s) -> Int64s:
    """The values at these places; at the place behind them, or at -1, it is `last`."""
    with_last = np.append(values, last)
    found: Int64s = with_last[places]
    return found


def _loop_ns(steps: Steps, passes: Passes) -> int:
    """When the first forward pass of a step begins, or, of a process that has none, its first
    step.
    """
    if not len(steps.step):
        return 0
    start_ns = int(steps.start_ns[0])
    first = int(np.searchsorted(passes.forward_ns, start_ns))
    if first == len(passes.forward_ns):
        return start_ns
    return int(passes.forward_ns[first])


def _as_before(rules: _Rules) -> None:
    """Blocks of the last two steps, and of what comes after them, are what most blocks like them
    were in the steps before.
    """
    blocks, steps, found = rules.blocks, rules.steps, rules.found
    recent = max(0, len(steps.step) - CUT_STEPS)
    if not recent:
        return
    from_ns = steps.start_ns[max(0, recent - _EXAMPLE_STEPS)]
    is_settled = rules.before_loop & rules.lives_on
    is_settled |= rules.backward | rules.optimizer
    is_late = blocks.at_ns >= from_ns
    rows = np.flatnonzero(is_late & ~is_settled)
    keys = [blocks.line, blocks.operator, blocks.module, blocks.phase]
    groups = grouped_by([column[rows] for column in keys])
    is_recent = blocks.at_ns[rows] >= steps.start_ns[recent]
    examples = np.flatnonzero(~is_recent)
    counts = np.zeros((len(groups), len(CATEGORIES)), np.int64)
    category = found.category[rows[examples]]
    np.add.at(counts, (groups.number[examples], category), 1)
    usual: Int64s = counts.argmax(axis=1)
    has_one = counts.sum(axis=1) > 0
    is_cut = is_recent & rules.lives_on[rows]
    is_cut &= has_one[groups.number]
    # Without a next step the rules could not see how long these live.
    cut = rows[is_cut]
    found.category[cut] = usual[groups.number[is_cut]]
    found.is_certain[cut] = False


def _most_of_a_pass(size: Int64s, of_pass: Int64s, sizes: int) -> Int64s:
    """How many gradients of each size (numbers below `sizes`) come of one pass at most."""
    most = np.zeros(sizes, np.int64)
    if len(size):
        groups = grouped_by([size, of_pass])
        np.maximum.at(most, size[groups.first], groups.counts())
    return most


def _certain_by_size(rules: _Rules) -> None:
    """What the sizes of parameters and gradients make certain."""
    found, size = rules.found, rules.blocks.bytes
    parameters = np.flatnonzero(found.category == PARAMETER)
    gradients = np.flatnonzero(found.category == GRADIENT)
    both = np.concatenate([parameters, gradients])
    of_size = grouped_by([size[both]])
    is_parameter = np.arange(len(both)) < len(parameters)
    of_pass = counted_until(rules.blocks.at_ns, found.passes.begin_ns)[gradients]
    gradient_count = _most_of_a_pass(of_size.number[~is_parameter], of_pass, len(of_size))
    is_few = of_size.sums(is_parameter) <= gradient_count
    number = of_size.number[is_parameter]
    is_certain = is_few[number]
    found.is_certain[parameters] = is_certain
    # Of too many of one size those are it that come from lines which made others.
    line = rules.blocks.line[parameters]
    is_same = np.isin(line, distinct(line[is_certain]))
    same_count = np.bincount(number[is_same], minlength=len(of_size))
    is_told = (same_count > 0) & (same_count <= gradient_count)
    is_buffer = ~is_certain & ~is_same & is_told[number]
    found.category[parameters[is_buffer]] = BUFFER
    sizes = distinct(size[parameters])
    for category in (GRADIENT, STATE):
        rows = np.flatnonzero(found.category == category)
        has_size = np.isin(size[rows], sizes)
        if category == STATE:
            has_size &= rules.lives_on[rows]
        found.is_certain[rows] = has_size
