// A module in C whose function computes, from two lines 3:1.
// build: gcc -O2 -shared -fPIC -I{include} -DWORK_{also} {source} -o {folder}/c_planted.so
// also: kernel
// run: {python} {script} {seconds}
/* python
import sys

import c_planted
import planted


def often():
    c_planted.work(3)  # line: often


def seldom():
    c_planted.work(1)  # line: seldom


while planted.going():
    with planted.Cpu(function="often", line="often", symbol_total="planted_outer"):
        often()
    with planted.Cpu(function="seldom", line="seldom", symbol_total="planted_outer"):
        seldom()
planted.finish()
*/

#include "planted.h"

#include <Python.h>

NOINLINE double planted_inner(double x) {
#ifdef WORK_kernel
    for (int i = 0; i < 50; i++) planted_kernel();
#else
    for (int i = 0; i < 20; i++) x = planted_work(x);
#endif
    return x + 1;
}

NOINLINE double planted_outer(long times) {
    double x = 1;
    for (long i = 0; i < times; i++) x = planted_inner(x);
    return x + 1;
}

static PyObject *work(PyObject *module, PyObject *times) {
    (void)module;
    return PyFloat_FromDouble(planted_outer(PyLong_AsLong(times)));
}

static PyMethodDef methods[] = {{"work", work, METH_O, ""}, {0, 0, 0, 0}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "c_planted",
                                        .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit_c_planted(void) { return PyModule_Create(&definition); }
