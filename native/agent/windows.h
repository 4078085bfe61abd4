/* What windows.c, which opens and closes, and steps.c, which counts, share. */
#ifndef LAYERSCOPE_WINDOWS_H
#define LAYERSCOPE_WINDOWS_H

#include "agent.h"

#define LS_MOST_LEADERS 64u

/* What was asked for. */
typedef struct {
    int64_t first, last, every;
    int by_time, opens_at_once, expects_marks;
    char mark[LF_NAME_LIMIT];
} ls_asked_window;

/* What is known of an optimizer that ends the steps: its instance, or its name where nobody tells the instance. */
typedef struct {
    int is_known;
    uint32_t instance, name;
} ls_stepper;

enum { LS_KIND_UNKNOWN = -1 };
/* What has happened in this process so far. Changed with the lock held. */
typedef struct {
    uint32_t rule;  /* the strongest that has shown */
    int64_t number; /* of the step that goes on by it */
    int is_in;      /* whether that step is one that was asked for */
    int64_t until;  /* behind the last one of its window, and of the last window when it is none */
    int is_told;    /* a mark says so */
    int is_open;    /* whether spans are recorded */
    int forked_from_a_loop, was_open;
    int64_t count[LF_RULES];
    ls_stepper optimizer[2];
    uint32_t loader_track, mark_track, named_track, marked_name;
    int loader_is_marked, is_waiting, has_worked;
    int mark_kind; /* of the spans that --step-mark names: one of LF_FUNCTION... */
    int backward;  /* the backward pass that a step ends with, -1: none */
    uint32_t backward_rule;
    const ls_thread *backward_thread;
    uint32_t optimizers_open; /* on all threads, those in others too */
    int64_t running; /* steps of the window that are open, where several threads make them */
    uint32_t leaders, leader_names[LS_MOST_LEADERS];
    int64_t leader_calls[LS_MOST_LEADERS];
    uint32_t leader, leader_changes; /* which of them requests begin with, and how often it was another one by then */
    int is_new_leader;               /* the request that arrives is the first one of its leader */
} ls_window_state;

extern ls_asked_window ls_asked;
extern ls_window_state ls_window;

static inline void ls_window_lock(void) { ls_lock(&ls.wiped->windows_lock); }
static inline void ls_window_unlock(void) { ls_unlock(&ls.wiped->windows_lock); }

int ls_window_contains(int64_t number);
int ls_window_follows(void);
int ls_window_names_operators(void);
void ls_window_settle(void);
void ls_window_arrive(uint32_t rule, int64_t number);
void ls_window_depart(uint32_t rule, int64_t number);
void ls_window_hear(void);

#endif
