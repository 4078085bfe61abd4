/* Which spans a framework announces. */
#ifndef LAYERSCOPE_ANNOUNCERS_H
#define LAYERSCOPE_ANNOUNCERS_H

#include "agent.h"

/* What an adapter does where windows open and close, and where recording ends. `attend`: which operators it announces
 * from now on, one of LS_ATTEND_NONE...; called with the lock of the beginning held, as `leave`, which ends all. */
typedef struct {
    void (*attend)(int which);
    void (*leave)(void);
} ls_announcer;

/* From now on this adapter is told; called with the lock of the beginning held. */
void ls_operators_announce(const ls_announcer *announcer);

/* Which operators are looked at now, for an adapter that starts in the middle. */
int ls_operators_attended(void);

/* Whether what operators ask of libraries is not recorded. */
extern _Atomic int ls_primitives_stopped;

#endif
