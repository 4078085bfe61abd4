/* blocked PID: unwinds the stack of each thread that waits in a system call from what /proc tells of it, SP and PC
 * alone. Prints "thread TID how H" and the addresses of its frames. */
#define _GNU_SOURCE
#include "stacks/stacks.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int read_process(void *of, uint64_t address, void *into, size_t bytes) {
    struct iovec here = {into, bytes}, there = {(void *)address, bytes};
    return process_vm_readv(*(pid_t *)of, &here, 1, &there, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

/* The line of /proc of a thread that waits; it may still be on its way there. */
static void read_line(pid_t pid, const char *tid, char *line, int bytes) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task/%s/syscall", pid, tid);
    for (int tries = 0; tries < 5000; tries++) {
        FILE *file = fopen(path, "r");
        bool read = file && fgets(line, bytes, file);
        if (file)
            fclose(file);
        if (read && strchr(line, ' '))
            return;
        usleep(1000);
    }
    *line = 0;
}

static void tell(lu_space *space, pid_t pid, const char *tid) {
    char line[300], *words[10];
    int count = 0;
    uint32_t how;
    lu_native_frame frames[LF_SAMPLES_FRAMES_MOST];
    uint64_t registers[LF_REGISTERS] = {0};
    read_line(pid, tid, line, sizeof line);
    for (char *word = strtok(line, " \n"); word && count < 10; word = strtok(NULL, " \n"))
        words[count++] = word;
    if (count < 3)
        return;
    registers[LF_RSP] = strtoull(words[count - 2], NULL, 16);
    registers[LF_RIP] = strtoull(words[count - 1], NULL, 16);
    lu_stack_copy stack = {0, NULL, 0, read_process, &pid, NULL};
    int depth = lu_unwind(space, registers, 1u << LF_RSP | 1u << LF_RIP, &stack, frames, LF_SAMPLES_FRAMES_MOST, &how);
    printf("thread %s how %u\n", tid, how);
    for (int i = 0; i < depth; i++)
        printf("%lx\n", frames[i].address);
}

int main(int argc, char **argv) {
    char path[64];
    pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
    lu_space *space = lu_space_of(pid);
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    if (!space || !folder)
        return 2;
    for (struct dirent *e; (e = readdir(folder));)
        if (e->d_name[0] != '.')
            tell(space, pid, e->d_name);
    closedir(folder);
    lu_space_free(space);
    return 0;
}
