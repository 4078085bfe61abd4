/* The binary interface of ITT as far as we take part in it: a program has a copy of Intel's static library, which loads
 * the collector that INTEL_LIBITTNOTIFY64 names, and hands it a table of function pointers to be filled in. Facts from
 * ittnotify.h, ittnotify_config.h and ittnotify_static.{h,c} of https://github.com/intel/ittapi. */
#ifndef LAYERSCOPE_ITT_H
#define LAYERSCOPE_ITT_H

#include "client.h"

#include <pthread.h>

typedef struct {
    unsigned long long words[3];
} itt_id;

typedef struct {
    const char *name; /* as "__itt_task_begin"; NULL ends the table */
    void **function;
    void *initial, *null; /* what `function` is before, and where nobody collects */
    int group;
} itt_function;

typedef struct {
    unsigned char magic[8];
    unsigned long version_major, version_minor, version_build;
    volatile long initialized, mutex_initialized, counter;
    pthread_mutex_t mutex;
    void *library, *error_handler;
    const char **library_path;
    itt_function *functions;
} itt_global;

/* __itt_counter: what the program's own copy makes before it has a collector. The last members may be unset. */
typedef struct {
    const char *name;
    void *wide_name;
    const char *domain;
    void *wide_domain;
    int type; /* one of the ITT_ values */
    long value; /* ours: of counters that are only added to */
    int unused;
    void *unused_either, *next;
} itt_counter;

enum { ITT_UNKNOWN = 0, ITT_U64 = 1, ITT_S64 = 2, ITT_U32 = 3, ITT_S32 = 4, ITT_U16 = 5, ITT_S16 = 6, ITT_FLOAT = 7,
       ITT_DOUBLE = 8 };
enum { ITT_SCOPE_UNKNOWN = 0, ITT_SCOPE_TASK = 4 };

/* itt_offer.c */
void ls_itt_offer(const void *inside);
void ls_itt_taken(void);

/* itt_values.c */
size_t itt_value_text(char *into, size_t bytes, int type, const void *values, size_t index);
int64_t itt_value_of(int type, const void *value);
itt_counter *itt_counter_create(const char *name, const char *domain);
itt_counter *itt_counter_create_typed(const char *name, const char *domain, int type);
itt_counter *itt_counter_create_v3(const ls_domain *domain, const char *name, int type);
void itt_counter_set(itt_counter *counter, void *value);
void itt_counter_set_ex(itt_counter *counter, void *clock, unsigned long long at, void *value);
void itt_counter_inc(itt_counter *counter);
void itt_counter_dec(itt_counter *counter);
void itt_counter_inc_delta(itt_counter *counter, unsigned long long delta);
void itt_counter_dec_delta(itt_counter *counter, unsigned long long delta);
void itt_counter_inc_v3(const ls_domain *domain, ls_label *name);
void itt_counter_dec_v3(const ls_domain *domain, ls_label *name);
void itt_counter_inc_delta_v3(const ls_domain *domain, ls_label *name, unsigned long long delta);
void itt_counter_dec_delta_v3(const ls_domain *domain, ls_label *name, unsigned long long delta);
void itt_metadata_add(const ls_domain *domain, itt_id id, ls_label *key, int type, size_t count, void *values);
void itt_metadata_add_with_scope(const ls_domain *domain, int scope, ls_label *key, int type, size_t count,
                                 void *values);
void itt_metadata_str_add(const ls_domain *domain, itt_id id, ls_label *key, const char *text, size_t length);
void itt_metadata_str_add_with_scope(const ls_domain *domain, int scope, ls_label *key, const char *text,
                                     size_t length);
void itt_formatted_metadata_add(const ls_domain *domain, ls_label *format, ...);

#endif
