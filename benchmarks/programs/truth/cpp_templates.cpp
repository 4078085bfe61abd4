// Names with template arguments, namespaces and overloads.
// build: g++ -O2 {source} -o {out}

#include "planted.h"

namespace planted::inside {
template <typename T, int N>
struct Worker {
    NOINLINE T operator()(T x) const {
        for (int i = 0; i < N; i++) x = planted_work(x);
        return x + 1;
    }
};
NOINLINE double overload(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 2;
}
}  // namespace planted::inside

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        PLANTED_CPU("symbol", "planted::inside::Worker<double, 30>::operator()",
                    planted_sink = planted::inside::Worker<double, 30>()(1));
        PLANTED_CPU("symbol", "planted::inside::overload",
                    planted_sink = planted::inside::overload(1));
    }
    planted_finish();
}
