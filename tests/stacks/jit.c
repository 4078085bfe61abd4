/* Code that is made while the program runs, as oneDNN makes it: without unwind information, with all registers used. */
#define _GNU_SOURCE
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void recorder_start(const char *path, unsigned samples);
void recorder_range(const void *start, const void *end, unsigned above);
void recorder_expect(void);
void recorder_forget(void);
int recorder_wants_more(void);
void recorder_finish(void);

#define HERE __attribute__((noinline, noclone))
/* Of their own section: where they begin and end is known. */
#define BELOW __attribute__((noinline, noclone, section("below_made_code")))

extern const char __start_below_made_code[], __stop_below_made_code[];
static volatile uint64_t sink;
static uint8_t *at; /* where the next byte of code goes */

static void bytes(const char *hexadecimal) {
    for (; *hexadecimal; hexadecimal++) {
        unsigned value;
        if (*hexadecimal == ' ')
            continue;
        value = (unsigned)strtoul((char[]){hexadecimal[0], hexadecimal[1], 0}, NULL, 16);
        *at++ = (uint8_t)value;
        hexadecimal++;
    }
}

static void number(uint32_t value) {
    memcpy(at, &value, 4);
    at += 4;
}

/* A loop of rdi rounds, with nonsense in the registers that a caller relies on. */
static void loop(void) {
    bytes("48 c7 c5 01 00 00 00"); /* mov rbp, 1 */
    bytes("48 89 e3");             /* mov rbx, rsp */
    bytes("49 c7 c4 ff ff 00 00"); /* mov r12, 0xffff */
    bytes("48 ff cf 75 fb");       /* dec rdi; jnz */
}

static const char *const pushes[] = {"55 48 89 e5 53 41 54 41 55 41 56 41 57", "53 55 41 54 41 55 41 56 41 57"};
static const char *const pops[] = {"41 5f 41 5e 41 5d 41 5c 5b 5d c3", "41 5f 41 5e 41 5d 41 5c 5d 5b c3"};


typedef void (*made)(uint64_t rounds, void (*below)(uint64_t));

/* `order` of the registers; `frame` bytes on the stack; what it does inside: nothing, CALL of `inner`, or of rsi. */
static made make(int order, uint32_t frame, const uint8_t *inner, int calls_back, unsigned above) {
    uint8_t *start = at;
    bytes(pushes[order]);
    bytes("48 81 ec");
    number(frame); /* sub rsp */
    if (calls_back)
        bytes("57 56 ff d6 5e 5f"); /* push rdi; push rsi; call rsi; pop rsi; pop rdi */
    if (inner) {
        bytes("57 56 e8");
        number((uint32_t)(inner - (at + 4)));
        bytes("5e 5f");
    }
    loop();
    bytes("48 81 c4");
    number(frame);
    bytes(pops[order]);
    recorder_range(start, at, above);
    return (made)start;
}

/* No frame at all. */
static made make_leaf(void) {
    uint8_t *start = at;
    bytes("48 ff cf 75 fb c3");
    recorder_range(start, at, 1);
    return (made)start;
}

BELOW static void below(uint64_t rounds) {
    volatile char memory[100];
    for (uint64_t i = 0; i < rounds; i++)
        memory[i % sizeof memory] = (char)i;
    sink += (uint64_t)memory[rounds % sizeof memory];
}

/* Leaves return addresses behind where a frame of made code will be. */
HERE static uint64_t litter(uint64_t n) { return n ? litter(n - 1) + sink : 0; }

HERE static void caller(made code, uint64_t rounds) {
    recorder_expect();
    litter(rounds % 50);
    code(rounds, below);
    recorder_forget();
    sink++;
}

/* Its frame ends at rbp + 16. */
HERE static void with_frame_pointer(made code, uint64_t rounds) {
    volatile char *memory = alloca(rounds % 1000 + 1);
    memory[0] = 1;
    caller(code, rounds);
    sink += (uint64_t)memory[0];
}

/* So does this, and it calls made code itself. */
HERE static void caller_with_frame_pointer(made code, uint64_t rounds) {
    volatile char *memory = alloca(rounds % 1000 + 1);
    memory[0] = 1;
    recorder_expect();
    litter(rounds % 50);
    code(rounds, below);
    recorder_forget();
    sink += (uint64_t)memory[0];
}

int main(int argc, char **argv) {
    made codes[9];
    if (argc < 3)
        return 2;
    at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    codes[0] = make(0, 8, NULL, 0, 1);
    codes[1] = make(1, 8, NULL, 0, 1);
    codes[2] = make(0, 4000, NULL, 0, 1);
    codes[3] = make(1, 600, NULL, 0, 1);
    codes[4] = make_leaf();
    uint8_t *inner = at;
    make(0, 200, NULL, 0, 2);
    codes[5] = make(0, 40, inner, 0, 1);
    inner = at;
    make(1, 0, NULL, 0, 2);
    codes[6] = make(1, 1000, inner, 0, 1);
    codes[7] = make(0, 72, NULL, 1, 1);
    codes[8] = make(1, 72, NULL, 1, 1);
    recorder_range(__start_below_made_code, __stop_below_made_code, 2);
    recorder_start(argv[1], (unsigned)atoi(argv[2]));
    for (uint64_t i = 0; recorder_wants_more(); i++) {
        made code = codes[i % 9];
        uint64_t rounds = 1000 + i * 7919 % 30000;
        switch (i / 9 % 3) {
        case 0: caller(code, rounds); break;
        case 1: with_frame_pointer(code, rounds); break;
        default: caller_with_frame_pointer(code, rounds); break;
        }
    }
    recorder_finish();
    return 0;
}
