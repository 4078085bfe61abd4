/* The ticks of a clock on the clock of the run: what Conversion.to_run of model/clocks.py says. */
#include "tables.h"

#include <string.h>

#define LARGEST 9223372036854775808.0

static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* Rounded down; what does not fit becomes what NumPy makes of it on x86. */
static int64_t whole(double value) {
    if (!(value >= -LARGEST && value < LARGEST))
        return INT64_MIN;
    int64_t towards_zero = (int64_t)value;
    return towards_zero - ((double)towards_zero > value);
}

/* The line that holds `moment`, from the one that held the moment before it: the last reading that is not behind it. */
static int64_t line_of(int64_t moment, int64_t line, const int64_t *ticks, int64_t readings) {
    if (moment >= ticks[line] && (line == readings - 1 || moment < ticks[line + 1]))
        return line;
    int64_t low = 0, high = readings; /* the answer is below `high` */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (ticks[middle] <= moment)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* In place; `moments` are 64-bit integers, `stride` bytes from one to the next. There are at least two readings. */
LC_API void lc_to_run(uint8_t *moments, int64_t stride, int64_t count, const int64_t *ticks, const int64_t *run_ns,
                      int64_t readings) {
    int64_t line = 0, known = -1, most_ns = 0;
    double slope = 0;
    for (int64_t i = 0; i < count; i++, moments += stride) {
        int64_t moment;
        memcpy(&moment, moments, sizeof moment);
        line = line_of(moment, line, ticks, readings);
        if (line != known) {
            int64_t of = line < readings - 1 ? line : readings - 2;
            int64_t length_ns = difference(run_ns[of + 1], run_ns[of]);
            slope = (double)length_ns / (double)difference(ticks[of + 1], ticks[of]);
            most_ns = line < readings - 1 ? length_ns : INT64_MAX;
            known = line;
        }
        double product = (double)difference(moment, ticks[line]) * slope;
        int64_t along_ns = whole(product);
        moment = sum(run_ns[line], along_ns < most_ns ? along_ns : most_ns);
        memcpy(moments, &moment, sizeof moment);
    }
}

/* The place of the last of `starts`, which ascend, that is not behind each moment; LC_NONE where all are. The moments
 * are nearly in order. */
LC_API void lc_last_starts(const int64_t *moments, int64_t count, const int64_t *starts, int64_t known,
                           int32_t *places) {
    int64_t place = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!known || moments[i] < starts[0]) {
            places[i] = LC_NONE;
            continue;
        }
        place = line_of(moments[i], place, starts, known);
        places[i] = (int32_t)place;
    }
}
