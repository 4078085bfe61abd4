/* Windows: only some steps, or only some seconds, are recorded, and the program goes on outside of them.
 *
 * What begins and ends steps is counted as it happens (steps.c), and the strongest rule that has shown so far says
 * which step goes on. While the window is closed no span is recorded, and a framework may not even call us for operators
 * (`ls_operators_attend`). Where it opens and closes a mark says which step begins there.
 *
 * A rule may show late: a loader waits before the first optimizer steps. So a window that begins with step 0 stays
 * open longer than it seems right, PATIENCE steps at most; the reader drops what a weaker rule let in. */
#define _GNU_SOURCE
#include "windows.h"

#include <string.h>

#define PATIENCE 64

ls_asked_window ls_asked;
ls_window_state ls_window;
static ls_asked_window *const asked = &ls_asked;
static ls_window_state *const w = &ls_window;

/* --- What is open ------------------------------------------------------------------------------------------------ */

int ls_window_contains(int64_t number) {
    if (number < asked->first)
        return 0;
    return asked->every ? (number - asked->first) % asked->every < asked->last - asked->first : number < asked->last;
}

static int64_t end_of_window(int64_t number) {
    return asked->every ? number - (number - asked->first) % asked->every + asked->last - asked->first : asked->last;
}

/* A process that makes no steps of its own does as the one it belongs to: the drainer says what that is. */
int ls_window_follows(void) {
    return w->rule < LF_RULE_LOADER && (w->forked_from_a_loop || LS_LOAD(ls.heard) != LF_CAPTURE_NOTHING);
}

static int may_a_stronger_rule_show(void) {
    if (w->rule < LF_RULE_OPTIMIZER || (asked->mark[0] && w->rule < LF_RULE_NAMED))
        return 1;
    return asked->expects_marks && w->rule < LF_RULE_MARK;
}

static int is_open_now(void) {
    uint32_t said = LS_LOAD(ls.heard);
    if (said == LF_CAPTURE_OVER)
        return 0;
    if (asked->by_time)
        return said == LF_CAPTURE_NOTHING ? asked->opens_at_once : said == LF_CAPTURE_OPEN;
    if (ls_window_follows())
        return said == LF_CAPTURE_NOTHING ? w->was_open : said == LF_CAPTURE_OPEN;
    return w->is_in || (!asked->first && may_a_stronger_rule_show() && w->number < asked->last + PATIENCE);
}

/* Whether --step-mark may name an operator, so that all of them have to be looked at. */
int ls_window_names_operators(void) {
    int kind = LS_LOAD(w->mark_kind);
    return asked->mark[0] && (kind == LF_FUNCTION || kind == LS_KIND_UNKNOWN);
}

/* Which operators have to come through us: they cost least when they do not. */
static int attention(void) {
    if (LS_LOAD(ls.heard) == LF_CAPTURE_OVER)
        return LS_ATTEND_NONE;
    if (w->is_open || w->backward != -1 || ls_window_names_operators())
        return LS_ATTEND_ALL;
    if (asked->by_time || ls_window_follows())
        return LS_ATTEND_SOME;
    return w->rule == LF_RULE_NONE ? LS_ATTEND_ALL : LS_ATTEND_NONE;
}

void ls_window_settle(void) {
    LS_STORE(w->is_open, is_open_now());
    LS_STORE(ls.attention, !w->is_open || w->backward != -1 || ls_window_names_operators());
    LS_STORE(ls.page->window_rule, w->rule);
    LS_STORE(ls.page->window_is_open, (uint32_t)w->is_open);
    if (!w->is_in || !LS_LOAD(ls.page->window_opened_ns))
        LS_STORE(ls.page->window_opened_ns, w->is_in ? ls_monotonic_ns() : 0);
    ls_operators_attend(attention());
}

/* A window that holds no step asks for nothing but a mark where each of them begins (layerscope/tune/counting.py). */
int ls_window_only_counts(void) { return LS_LOAD(ls.watching) && asked->first == asked->last; }

static void tell(uint32_t what, int64_t number, uint64_t bits) {
    const ls_stepper *of = &w->optimizer[w->rule == LF_RULE_NAMED];
    uint64_t instance = w->rule == LF_RULE_OPTIMIZER || w->rule == LF_RULE_NAMED ? of->instance : 0;
    if (w->rule == LF_RULE_REQUEST)
        instance = w->leader_changes;
    uint64_t code = w->rule | bits | instance << LF_WINDOW_INSTANCE;
    ls_moment(LF_MARK, "window", code, what, number > INT32_MAX ? -1 : (int32_t)number);
}

/* By `rule` the step `number` begins now. */
void ls_window_arrive(uint32_t rule, int64_t number) {
    if (rule < w->rule)
        return;
    int is_stronger = rule > w->rule || w->is_new_leader, followed = ls_window_follows();
    uint64_t bits = w->is_open ? 0 : LF_WINDOW_WAS_CLOSED;
    LS_STORE(w->rule, rule);
    w->number = number;
    LS_STORE(ls.page->window_steps, (uint64_t)number + 1);
    int is_in = ls_window_contains(number);
    int64_t until = is_stronger || number < w->until ? number : w->until;
    int is_next = is_in && w->is_in && !is_stronger && number >= w->until; /* a step outlasts what is between windows */
    int is_news = is_in != w->is_in || is_next || (is_stronger && (w->is_told || followed));
    is_news = is_news && !asked->by_time && LS_LOAD(ls.heard) != LF_CAPTURE_OVER && !ls_window_follows();
    w->is_in = is_in;
    w->until = is_in ? end_of_window(number) : until;
    ls_window_settle();
    if (ls_window_only_counts() && !ls_window_follows())
        tell(LF_MARK_BEGINS, number, bits);
    if (!is_news)
        return;
    w->is_told = 1;
    if (!is_in || is_next)
        tell(LF_MARK_CLOSED, until, bits);
    if (is_in)
        tell(LF_MARK_OPENED, number, bits);
}

/* A request, or a part of it, is over. */
void ls_window_depart(uint32_t rule, int64_t number) {
    if (ls_window_only_counts() && w->rule == rule && !ls_window_follows())
        tell(LF_MARK_ENDS, number, 0);
}

/* The step that will be the next to begin, as far as that is known: windows of time open in the middle of one. */
static int64_t next_number(void) {
    int loader = w->rule == LF_RULE_LOADER || (w->rule == LF_RULE_NAMED && w->mark_kind == LF_LOADER);
    if (loader)
        return w->count[LF_RULE_LOADER] + w->is_waiting;
    int by_end = w->rule == LF_RULE_OPTIMIZER || w->rule == LF_RULE_MARK || w->mark_kind == LF_OPTIMIZER;
    return w->rule == LF_RULE_NONE ? -1 : w->count[w->rule] + by_end;
}

/* Whether an optimizer is at work that may end the step, without being recorded: a window that opened now would take
 * the next one for the first. */
static int has_to_wait(void) {
    int opens = asked->by_time && !w->is_open && LS_LOAD(*ls.said) == LF_CAPTURE_OPEN;
    return opens && (w->optimizers_open || w->backward != -1);
}

/* The drainer has said something new. */
void ls_window_hear(void) {
    if (LS_LOAD(*ls.said) == LS_LOAD(ls.heard) || !ls_thread_here())
        return;
    ls_window_lock();
    if (LS_LOAD(*ls.said) != ls.heard && !has_to_wait()) {
        int was_open = w->is_open, followed = ls_window_follows();
        LS_STORE(ls.heard, LS_LOAD(*ls.said));
        ls_window_settle();
        int is_over = ls.heard == LF_CAPTURE_OVER && !followed;
        uint32_t what = w->is_open ? LF_MARK_OPENED : LF_MARK_CLOSED;
        if (was_open != w->is_open && (asked->by_time || is_over))
            tell(what, next_number(), LF_WINDOW_BY_TIME | (was_open ? 0 : LF_WINDOW_WAS_CLOSED));
    }
    ls_window_unlock();
}

/* Called now and then while the window is closed. */
void ls_window_listens(void) {
    if (!LS_LOAD(ls.wiped->generation) && ls_thread_here()) { /* a forked child */
        ls_window_lock();
        ls_window_settle();
        ls_window_unlock();
    }
    ls_window_hear();
}

int ls_window_is_open(void) {
    ls_window_hear();
    return LS_LOAD(w->is_open);
}

/* Whether what runs on this thread is recorded: what was submitted on another one is if a window was open then, whether
 * one is now or not. */
int ls_window_records(const ls_thread *t) {
    return t && t->submitted_in ? t->submitted_in == LS_IN_WINDOW : LS_LOAD(w->is_open);
}

/* --- Beginnings -------------------------------------------------------------------------------------------------- */

static int is_line_like(const char *text) {
    const char *colon = strrchr(text, ':');
    return colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

/* A process begins, or a forked child, which counts its own steps and meanwhile does as its parent did. */
void ls_windows_begin(int forked) {
    if (!LS_LOAD(ls.watching))
        return;
    int was_loop = forked && w->rule >= LF_RULE_LOADER, was_open = w->is_open;
    memset(&ls_window, 0, sizeof ls_window);
    w->forked_from_a_loop = was_loop;
    w->was_open = was_open;
    w->backward = -1;
    w->mark_kind = is_line_like(asked->mark) ? LF_RANGE : LS_KIND_UNKNOWN;
    w->is_in = ls_window_contains(0);
    w->until = w->is_in ? end_of_window(0) : 0;
    ls.said = &ls.page->window;
    if (asked->by_time)
        LS_STORE(ls.page->window, ls.heard); /* what was said to the parent */
    else
        LS_STORE(ls.heard, LF_CAPTURE_NOTHING);
    LS_STORE(w->is_open, is_open_now());
    LS_STORE(ls.attention, !w->is_open || ls_window_names_operators());
    LS_STORE(ls.page->window_is_open, (uint32_t)w->is_open);
    LS_STORE(ls.page->window_opened_ns, w->is_in ? ls_monotonic_ns() : 0);
    LS_STORE(ls.page->window_steps, 0);
}

/* Record only the steps [first, last) and those each `every` steps later (0: once); `last` -1: without end. `by_time`:
 * only while the drainer says so, and until it says something if that is 2. `mark`: what --step-mark names. After
 * ls_prepare, before recording starts. */
LS_EXPORT void ls_window_set(int64_t first, int64_t last, int64_t every, int by_time, const char *mark) {
    if (LS_LOAD(ls.watching) || !ls.page)
        return;
    asked->first = first;
    asked->last = last < 0 ? INT64_MAX : last;
    asked->every = every;
    asked->by_time = by_time != 0;
    asked->opens_at_once = by_time == 2;
    strncpy(asked->mark, mark, sizeof asked->mark - 1);
    LS_STORE(ls.watching, 1u);
    ls_windows_begin(0);
    if (by_time) /* else all are looked at until something has told steps apart */
        ls_operators_attend(attention());
}

/* Whether what runs now is recorded, for those who record it by themselves. */
LS_EXPORT int ls_window_looks(void) { return !ls.wiped || !LS_LOAD(ls.watching) || ls_window_is_open(); }

/* The program has our library: it may mark its steps later. */
LS_EXPORT void ls_window_expect_marks(void) { asked->expects_marks = 1; }

/* Around os.fork: nobody else may be changing what frameworks call, and the child has to be called for operators again.
 * Whether nobody sees to it yet. */
LS_EXPORT int ls_window_watch_forks(void) {
    static _Atomic int done;
    return !atomic_exchange(&done, 1);
}

LS_EXPORT void ls_window_forks(void) { ls_operators_fork(); }
LS_EXPORT void ls_window_forked(int is_child) {
    int in_child = w->is_open || !ls.page ? LS_ATTEND_ALL : LS_ATTEND_SOME;
    ls_operators_forked(is_child ? in_child : -1);
}
