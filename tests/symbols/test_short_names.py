"""Names short enough for a flame graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.symbols import short
from layerscope.symbols.short_names import printed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "at::native::(anonymous namespace)::foo<float, 3ul>(at::Tensor const&)",
            "at::native::foo",
        ),
        ("void at::native::foo<int>(int)", "at::native::foo"),
        (
            "std::enable_if<is_same_v<double, X<double>::type>, void>::type at::foo<double>(int)",
            "at::foo",
        ),
        ("decltype(auto) foo<int>(int)", "foo"),
        ("int const* foo<int>(int)", "foo"),
        ("std::vector<int>& A<int>::get() const &", "A::get"),
        (
            "at::f(long)::'lambda'(long, long)::operator()(long, long) const",
            "at::f::{lambda}::operator()",
        ),
        (
            "at::f(long)::{lambda(long)#1}::operator()(long) const [clone .isra.0]",
            "at::f::{lambda}::operator()",
        ),
        (
            "A::f(int) const::'lambda3'()::operator()() const::'lambda'(int)",
            "A::f::{lambda}::operator()::{lambda}",
        ),
        (
            "f({lambda(g()::{lambda()#1})#2})::{lambda(g()::{lambda()#1})#2}::operator()()",
            "f::{lambda}::operator()",
        ),
        ("bool operator< <int>(A<int> const&, A<int> const&)", "operator<"),
        ("bool std::operator<<<char>(char, char)", "std::operator<<"),
        ("bool std::operator<<char>(char, char)", "std::operator<"),
        ("void A::operator><char>(char)", "A::operator>"),
        ("std::ostream& operator<<(std::ostream&, int)", "operator<<"),
        ("bool operator<=><int>(int, int)", "operator<=>"),
        ("A<int>::operator->() const", "A::operator->"),
        ("A<int>::operator bool() const", "A::operator bool"),
        ("A<int>::operator unsigned long() const", "A::operator unsigned long"),
        ("operator new(unsigned long)", "operator new"),
        ("A::operator[](unsigned long)", "A::operator[]"),
        ("A::operator+=(A const&) (.cold)", "A::operator+="),
        ("std::function<int (float)>::operator()(float) const", "std::function::operator()"),
        (
            "void c10::function_ref<void (char**, long)>::callback_fn<at::X>(long, char**)",
            "c10::function_ref::callback_fn",
        ),
        ("non-virtual thunk to A<int>::f(int)", "non-virtual thunk to A::f"),
        ("vtable for A<int>", "vtable for A"),
        ("guard variable for f(int)::x", "guard variable for f::x"),
        (
            "std::__cxx11::basic_string<char>::basic_string[abi:cxx11](char const*)",
            "std::__cxx11::basic_string::basic_string",
        ),
        ("auto g<int>(int) -> int", "int"),
        ("A::~A()", "A::~A"),
        ("core::fmt::Write::write_fmt::h0123456789abcdef", "core::fmt::Write::write_fmt"),
        (
            "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
            "<alloc::vec::Vec as core::ops::Drop>::drop",
        ),
        ("core::slice::sort::<u8>", "core::slice::sort"),
        ("foo::<u8>::{closure#0}", "foo::{closure#0}"),
        ("main", "main"),
        ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
        ("malloc@plt", "malloc@plt"),
        ("jit_avx512_core_brgemm:f32", "jit_avx512_core_brgemm:f32"),
        ("operatorial(int)", "operatorial"),
        ("a<b", "a<b"),
        ("f(", "f("),
        ("a>b", "a>b"),
        ("(anonymous namespace)::", "(anonymous namespace)::"),
        ("[jit]", "[jit]"),
        ("", ""),
    ],
)
def test_names_are_short(name: str, expected: str) -> None:
    assert short(name) == expected


@given(st.text("abc:<>()[]{}' operator,&*-lambda0.~$é", max_size=60))
def test_no_name_is_too_odd(name: str) -> None:
    found = short(name)
    # A lambda whose brace was cut off gets it back.
    assert len(found) <= len(name) + 8 * name.count("'") + name.count("{lambda")
    assert bool(found) == bool(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inner", "inner"),
        ("inner(double)", "inner"),
        ("inner(double) [clone .cold]", "inner"),
        ("void at::foo<float>(at::Tensor&)", "at::foo"),
        ("at::(anonymous namespace)::foo(int) const", "at::foo"),
        ("std::vector<int, std::allocator<int> >::push_back", "std::vector::push_back"),
        ("<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", "<alloc::vec::Vec as core::ops::drop::Drop>::drop"),
        # What other programs write into stacks is not only functions of C++.
        ("GC (Allocation Failure)", "GC (Allocation Failure)"),
        ("std::vector<int>::at (libone.so)", "std::vector<int>::at (libone.so)"),
        ("java.lang.String.<init>", "java.lang.String.<init>"),
        ("LazyCompile:~foo /path/file.js:10", "LazyCompile:~foo /path/file.js:10"),
        ("wait for work", "wait for work"),
        ("[unknown]", "[unknown]"),
    ],
)  # fmt: skip
def test_names_that_other_tools_have_printed_are_as_short_where_they_are_of_functions(
    text: str, expected: str
) -> None:
    assert printed(text) == expected
