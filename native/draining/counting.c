/* The sums over the spans of a process, for the drainer. */
#include "draining.h"

#include <stdlib.h>

LD_API li_sums *ld_sums_new(void) { return calloc(1, sizeof(li_sums)); }

LD_API void ld_sums_free(li_sums *sums) {
    free(sums->slots);
    free(sums);
}

LD_API void ld_sums_add(li_sums *sums, const lf_record *records, uint64_t count) { li_sums_add(sums, records, count); }

LD_API void ld_sums_go_on(li_sums *sums, const li_sums_row *rows, uint64_t count) { li_sums_go_on(sums, rows, count); }

LD_API uint64_t ld_sums_rows(const li_sums *sums, li_sums_row *rows, uint64_t room) {
    return li_sums_rows(sums, rows, room);
}
