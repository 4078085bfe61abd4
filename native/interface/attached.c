/* Under `layerscope run`: the agent that the environment names records, and the recorder beside the program answers.
 * LAYERSCOPE_AGENT holds fields as `name=value;`, percent-encoded where they need it (native/agent/autostart.c reads it). */
#define _GNU_SOURCE
#include "interface.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define VARIABLE "LAYERSCOPE_AGENT"
#define PACKET_BYTES 65536
#define SILENCE_S 10 /* the recorder says every second that an answer is coming */

static li_recorder agent;

int li_is_run_around(void) {
    const char *told = secure_getenv(VARIABLE);
    return told && *told;
}

static int hex(char c) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) % 16 : -1;
}

/* The value of a field; how many bytes it has, -1: there is none, or it is too long. */
static int field(const char *name, char *into, size_t bytes) {
    const char *at = secure_getenv(VARIABLE);
    size_t length = strlen(name), n = 0;
    while (at && !(!strncmp(at, name, length) && at[length] == '=')) {
        at = strchr(at, ';');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return -1;
    for (at += length + 1; *at && *at != ';'; at++) {
        if (n + 1 >= bytes)
            return -1;
        int high = *at == '%' ? hex(at[1]) : -1, low = high >= 0 ? hex(at[2]) : -1;
        into[n++] = low >= 0 ? (char)(high << 4 | low) : *at;
        at += low >= 0 ? 2 : 0;
    }
    into[n] = 0;
    return (int)n;
}

/* What the agent of `layerscope run` takes. NULL: this process is not recorded, and the reason is said, unless it is
 * of a rank that the user left out. */
const li_recorder *li_attach(int *is_left_out) {
    char path[PATH_MAX];
    *is_left_out = 0;
    if (field("library", path, sizeof path) < 1) {
        li_fail("$" VARIABLE " does not name the agent: this program was started by another version of layerscope");
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*open_door)(void) = NULL;
    void (*expect_marks)(void) = NULL; /* windows have to know that steps may be marked later */
    if (library) {
        *(void **)&open_door = dlsym(library, "ls_door_open");
        *(void **)&expect_marks = dlsym(library, "ls_window_expect_marks");
        *(void **)&agent.range_begin = dlsym(library, "ls_range_begin");
        *(void **)&agent.range_end = dlsym(library, "ls_range_end");
        *(void **)&agent.counter = dlsym(library, "ls_counter");
        *(void **)&agent.mark = dlsym(library, "ls_mark");
    }
    if (!open_door || !agent.range_begin || !agent.range_end || !agent.counter || !agent.mark) {
        li_fail("the agent of `layerscope run` could not be loaded from %s: it must be readable here", path);
        return NULL;
    }
    int code = open_door();
    if (code < 0)
        li_fail("the recorder of `layerscope run` does not answer: nothing of this process is recorded");
    *is_left_out = code > 0;
    if (!code && expect_marks)
        expect_marks();
    return code ? NULL : &agent;
}

/* --- Questions to the recorder --- */

static int connect_to_recorder(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = field("socket", address.sun_path + 1, sizeof address.sun_path - 1);
    int s = length > 0 ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    struct timeval silence = {SILENCE_S, 0};
    if (s < 0)
        return -1;
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (!connect(s, (struct sockaddr *)&address, bytes))
        return s;
    close(s);
    return -1;
}

/* Send a question, which is let go, and wait for the answer. -1: there is none. */
static int ask(li_text *question, li_text *answer) {
    int s = question->failed ? -1 : connect_to_recorder();
    char *packet = s < 0 ? NULL : malloc(PACKET_BYTES);
    ssize_t n = packet ? send(s, question->data, question->used, MSG_NOSIGNAL) : -1;
    while (n > 0) {
        n = recv(s, packet, PACKET_BYTES, 0);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            li_add(answer, "%.*s", (int)n, packet);
    }
    if (s >= 0)
        close(s);
    free(packet);
    free(question->data);
    const char *words = answer->data ? answer->data : "";
    if (n < 0 || answer->failed || !words[strspn(words, " \n")])
        return li_fail("the recorder of `layerscope run` does not answer; what it had taken by then is kept");
    const char *error = strstr(words, "\"error\": \"");
    if (error) {
        error += strlen("\"error\": \"");
        return li_fail("the trace could not be written: %.*s", (int)strcspn(error, "\"\\"), error);
    }
    return 0;
}

static void begin_question(li_text *question, const char *what, const char *file, uint64_t since_ns) {
    li_add(question, "{\"what\": \"%s\", \"file\": ", what);
    li_add_json(question, file, strlen(file));
    li_add(question, ", \"since_ns\": %llu, ", (unsigned long long)since_ns);
}

/* Have the trace `file` written, by the end of the program at the latest. */
int li_ask_for_trace(const char *file, uint64_t since_ns) {
    li_text question = {0}, answer = {0};
    begin_question(&question, "trace", file, since_ns);
    char period_s[32];
    ls_real_text(period_s, sizeof period_s, 6, li_asked.period_s);
    li_add(&question, "\"now_ns\": %llu, \"continuous\": %s, \"period_s\": %s}",
           (unsigned long long)ls_monotonic_ns(), li_asked.continuous ? "true" : "false", period_s);
    int failed = ask(&question, &answer);
    free(answer.data);
    return failed;
}

/* Have it written now, and wait for it. */
int li_ask_for_dump(const char *file, uint64_t since_ns, int finished) {
    li_text question = {0}, answer = {0};
    begin_question(&question, "dump", file, since_ns);
    li_add(&question, "\"finished\": %s}", finished ? "true" : "false");
    int failed = ask(&question, &answer);
    free(answer.data);
    return failed;
}
