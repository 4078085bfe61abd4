/* Calls the functions of cfi.S from frames that end at rbp + 16, so that a wrong rbp shows. */
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>

void recorder_start(const char *path, unsigned samples);
int recorder_wants_more(void);
void recorder_finish(void);

typedef void function(uint64_t rounds);
function cfa_by_expression, register_by_expression, value_by_expression, register_in_register, remembered, long_forms;

static volatile uint64_t sink;

__attribute__((noinline, noclone)) static void caller(function *called, uint64_t rounds) {
    volatile char *memory = alloca(rounds % 1000 + 1);
    memory[0] = 1;
    called(rounds);
    sink += (uint64_t)memory[0];
}

int main(int argc, char **argv) {
    static function *const all[] = {cfa_by_expression,    register_by_expression, value_by_expression,
                                    register_in_register, remembered,             long_forms};
    if (argc < 3)
        return 2;
    recorder_start(argv[1], (unsigned)atoi(argv[2]));
    for (uint64_t i = 0; recorder_wants_more(); i++)
        caller(all[i % 6], 2000 + i * 7919 % 30000);
    recorder_finish();
    return 0;
}
