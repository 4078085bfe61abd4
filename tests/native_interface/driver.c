/* A program that does with layerscope.h what its arguments say, one command an argument. A command that fails prints
 * why. "@2 push a b" does it on thread 2, which is made when it is first named; "fork" begins what only a child does,
 * up to the next "parent". */
#define _GNU_SOURCE
#include "layerscope.h"

#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define RANGES 16
#define WORDS 8

static layerscope_range ranges[RANGES];
static int key_of_nothing;
static const char *hand[THREADS]; /* what a thread is to do */
static pthread_t threads[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void check(const char *what, int failed) {
    if (failed)
        printf("%s: %s\n", what, layerscope_error());
    fflush(stdout);
}

static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *one = folder ? readdir(folder) : NULL; one; one = readdir(folder))
        count += one->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

static const char *text(const char *word) { return strcmp(word, "-") ? word : NULL; }

/* Keys and values: "config filename=a.json max_size=4MB". */
static void configure(char **words, int count) {
    const char *keys[WORDS], *values[WORDS];
    for (int i = 0; i < count; i++) {
        char *equals = strchr(words[i], '=');
        *equals = 0;
        keys[i] = words[i];
        values[i] = equals + 1;
    }
    check("config", layerscope_set_config(count, keys, values));
}

static void many(long count, const char *domain, const char *name) {
    for (long i = 0; i < count; i++) {
        layerscope_push(domain, name);
        layerscope_pop();
    }
}

static int annotate(char **w, int n) {
    const char *domain = n > 1 ? text(w[1]) : NULL, *name = n > 2 ? w[2] : NULL;
    if (!strcmp(w[0], "push"))
        layerscope_push(domain, name);
    else if (!strcmp(w[0], "pop"))
        check("pop", layerscope_pop());
    else if (!strcmp(w[0], "begin"))
        ranges[atoi(w[3])] = layerscope_range_begin(domain, name);
    else if (!strcmp(w[0], "frame"))
        ranges[atoi(w[3])] = layerscope_frame_begin(domain, name);
    else if (!strcmp(w[0], "end"))
        layerscope_range_end(ranges[atoi(w[1])]);
    else if (!strcmp(w[0], "counter"))
        layerscope_counter(domain, name, atoll(w[3]));
    else if (!strcmp(w[0], "marker"))
        layerscope_marker(domain, name, (layerscope_scope)atoi(w[3]));
    else if (!strcmp(w[0], "step"))
        layerscope_step();
    else if (!strcmp(w[0], "many"))
        many(atol(w[3]), domain, name);
    else
        return 0;
    return 1;
}

static void *outlive(void *milliseconds) {
    usleep((useconds_t)(long)milliseconds * 1000);
    layerscope_push(NULL, "late");
    layerscope_pop();
    printf("said at the end"); /* written when the C library ends the process */
    return NULL;
}

/* The first thread ends, and another one goes on for a while. */
static void leave_it_to_another(long milliseconds) {
    pthread_t thread;
    pthread_create(&thread, NULL, outlive, (void *)milliseconds);
    pthread_detach(thread);
    pthread_exit(NULL);
}

static void push_again(void *unused) {
    (void)unused;
    layerscope_push(NULL, "in a destructor");
    layerscope_pop();
}

/* When this thread ends it pushes once more, behind what the library does then. */
static void push_at_end(void) {
    pthread_key_t key;
    layerscope_push(NULL, "before");
    layerscope_pop();
    pthread_key_create(&key, push_again);
    pthread_setspecific(key, &key_of_nothing);
}

static void steer(char **w, int n) {
    if (!strcmp(w[0], "config"))
        configure(w + 1, n - 1);
    else if (!strcmp(w[0], "state"))
        check("state", layerscope_set_state(text(w[1])));
    else if (!strcmp(w[0], "pause"))
        check("pause", layerscope_pause());
    else if (!strcmp(w[0], "resume"))
        check("resume", layerscope_resume());
    else if (!strcmp(w[0], "dump"))
        check("dump", layerscope_dump(atoi(w[1])));
    else if (!strcmp(w[0], "say"))
        printf("%s\n", layerscope_recording());
    else if (!strcmp(w[0], "threads"))
        printf("%d threads, %d descriptors\n", entries("/proc/self/task"), entries("/proc/self/fd"));
    else if (!strcmp(w[0], "sleep"))
        usleep((useconds_t)atoi(w[1]) * 1000);
    else if (!strcmp(w[0], "chdir"))
        check("chdir", chdir(w[1]));
    else if (!strcmp(w[0], "language"))
        setlocale(LC_ALL, "");
    else if (!strcmp(w[0], "outlive"))
        leave_it_to_another(atol(w[1]));
    else if (!strcmp(w[0], "push_at_end"))
        push_at_end();
    else if (!strcmp(w[0], "kill"))
        raise(SIGKILL);
    else if (!strcmp(w[0], "_exit"))
        _exit(atoi(w[1]));
    else if (!strcmp(w[0], "exit"))
        exit(atoi(w[1]));
}

static void do_one(const char *command) {
    char copy[8192], *words[WORDS + 1] = {copy};
    int n = 0;
    snprintf(copy, sizeof copy, "%s", command);
    for (char *word = strtok(copy, " "); word && n < WORDS; word = strtok(NULL, " "))
        words[n++] = word;
    if (n && !annotate(words, n))
        steer(words, n);
    fflush(stdout);
}

static void *serve(void *number) {
    const char **mine = &hand[(long)number];
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!*mine)
            pthread_cond_wait(&changed, &lock);
        if (!strcmp(*mine, "leave"))
            break;
        do_one(*mine);
        *mine = NULL;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Have thread `number` do it, and wait until it has. */
static void on_thread(long number, const char *command) {
    if (!threads[number])
        pthread_create(&threads[number], NULL, serve, (void *)number);
    pthread_mutex_lock(&lock);
    hand[number] = command;
    pthread_cond_broadcast(&changed);
    while (hand[number] && strcmp(command, "leave"))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (!strcmp(command, "leave")) {
        pthread_join(threads[number], NULL);
        threads[number] = 0;
        hand[number] = NULL;
    }
}

/* All at once: each of the threads does the same. */
static void *of_all(void *command) {
    do_one(command);
    return NULL;
}

static void at_once(const char *command) {
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, of_all, (void *)command);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        threads[i] = 0;
    }
}

int main(int count, char **commands) {
    for (int i = 1; i < count; i++) {
        if (!strcmp(commands[i], "fork")) {
            pid_t child = fork();
            if (child) {
                printf("child %d\n", child);
                while (i < count && strcmp(commands[i], "parent"))
                    i++;
                waitpid(child, NULL, 0);
            }
        } else if (!strcmp(commands[i], "parent")) {
            exit(0); /* the child is done */
        } else if (commands[i][0] == '@') {
            on_thread(commands[i][1] - '0', commands[i] + 3);
        } else if (commands[i][0] == '*') {
            at_once(commands[i] + 2);
        } else {
            do_one(commands[i]);
        }
    }
    return 0;
}
