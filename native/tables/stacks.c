/* Stacks as a tree, and sampled ones among the spans that were open: what ingest/stack_tree.py says. */
#include "tables.h"

/* `nodes`: parents, frames and depths of `room` stacks; `places`: 2^bits, 1 + a stack, 0: free. There are always free
 * ones: they are more than twice as many as there is room for stacks. */
typedef struct {
    int32_t *parent, *frame, *depth, *places;
    int64_t bits, used;
} stack_tree;

static stack_tree tree_of(int32_t *nodes, int64_t room, int64_t used, int32_t *places, int64_t bits) {
    return (stack_tree){nodes, nodes + room, nodes + 2 * room, places, bits, used};
}

/* The place of a stack that is this frame in that one, or a free one. */
static int32_t *place_of(const stack_tree *tree, int32_t around, int32_t frame) {
    uint64_t last = ((uint64_t)1 << tree->bits) - 1, key = (uint64_t)(uint32_t)(around + 1) << 32 | (uint32_t)frame;
    uint64_t place = key * LC_SCATTER >> (64 - tree->bits);
    for (;; place = (place + 1) & last) {
        int32_t stack = tree->places[place] - 1;
        if (stack < 0 || (tree->parent[stack] == around && tree->frame[stack] == frame))
            return &tree->places[place];
    }
}

static int32_t push(stack_tree *tree, int32_t around, int32_t frame) {
    int32_t *place = place_of(tree, around, frame);
    if (*place)
        return *place - 1;
    int32_t stack = (int32_t)tree->used++;
    tree->parent[stack] = around;
    tree->frame[stack] = frame;
    tree->depth[stack] = around >= 0 ? tree->depth[around] + 1 : 0;
    *place = stack + 1;
    return stack;
}

/* Finds a place for each stack from `first` on. */
LC_API void lc_index(int32_t *nodes, int64_t room, int64_t first, int64_t used, int32_t *places, int64_t bits) {
    stack_tree tree = tree_of(nodes, room, used, places, bits);
    for (int64_t stack = first; stack < used; stack++)
        *place_of(&tree, tree.parent[stack], tree.frame[stack]) = (int32_t)stack + 1;
}

/* Pushes rows one after the other: `around` is a stack, LC_NONE for none, or -2 less the number of an earlier row. Two
 * frames `merged` in a row are one. There is room for all; returns how many stacks there are then. */
LC_API int64_t lc_push(int32_t *nodes, int64_t room, int64_t used, int32_t *places, int64_t bits, const int32_t *around,
                       const int32_t *frame, int64_t count, int64_t merged, int32_t *found) {
    stack_tree tree = tree_of(nodes, room, used, places, bits);
    for (int64_t row = 0; row < count; row++) {
        int64_t stack = around[row];
        if (stack < LC_NONE)
            stack = -2 - stack < row ? found[-2 - stack] : LC_NONE;
        int is_same = stack >= 0 && frame[row] == merged && tree.frame[stack] == merged;
        found[row] = is_same ? (int32_t)stack : push(&tree, (int32_t)stack, frame[row]);
    }
    return tree.used;
}

/* Frames of a sampled stack, from the outside in, and of the spans that were open; `cut`: Fusion.outer. */
typedef struct {
    const int32_t *path, *spans;
    int64_t frames, open, cut;
} one_sample;

static int32_t push_all(stack_tree *tree, int32_t stack, const int32_t *frames, int64_t first, int64_t until) {
    for (int64_t i = first; i < until; i++)
        stack = push(tree, stack, frames[i]);
    return stack;
}

/* Each span inside of the next function that begins such a one; without that just outside of the next one that has
 * one, or else behind `cut`. */
static int32_t interleave(stack_tree *tree, const one_sample *sample, const int32_t *anchors) {
    int64_t at = 0, waiting = 0;
    int32_t stack = LC_NONE;
    for (int64_t span = 0; span < sample->open; span++) {
        int32_t wanted = anchors[sample->spans[span]];
        int64_t begins = at;
        while (wanted != LC_NONE && begins < sample->frames && anchors[sample->path[begins]] != wanted)
            begins++;
        if (wanted == LC_NONE || begins == sample->frames)
            continue;
        stack = push_all(tree, stack, sample->path, at, begins);
        stack = push_all(tree, stack, sample->spans, waiting, span);
        stack = push(tree, stack, sample->path[begins]);
        stack = push(tree, stack, sample->spans[span]);
        at = begins + 1;
        waiting = span + 1;
    }
    int64_t cut = sample->cut > at ? sample->cut : at;
    cut = cut < sample->frames ? cut : sample->frames;
    stack = push_all(tree, stack, sample->path, at, cut);
    stack = push_all(tree, stack, sample->spans, waiting, sample->open);
    return push_all(tree, stack, sample->path, cut, sample->frames);
}

/* The fused stack of each of `count` pairs of a sampled stack and spans: `frames` from `bounds[i]` to `bounds[i + 1]`.
 * `of`: the `ofs` sampled stacks; the first `adopted` are the same here. `anchors`: by frame. `path`: room for the
 * deepest of them. Returns how many pairs were done before there was no room for the next; `used`: how many stacks. */
LC_API int64_t lc_fuse(int32_t *nodes, int64_t room, int64_t *used, int32_t *places, int64_t bits, const int32_t *of,
                       int64_t ofs, const int32_t *outer, int64_t adopted, const int32_t *anchors,
                       const int32_t *sampled, const int32_t *frames, const int64_t *bounds, int64_t count,
                       int32_t *path, int32_t *found) {
    stack_tree tree = tree_of(nodes, room, *used, places, bits);
    const int32_t *parent = of, *frame = of + ofs, *depth = of + 2 * ofs;
    int64_t pair = 0;
    for (; pair < count; pair++) {
        int32_t stack = sampled[pair];
        one_sample sample = {path, frames + bounds[pair], 0, bounds[pair + 1] - bounds[pair], 0};
        sample.frames = stack >= 0 ? depth[stack] + 1 : 0;
        if (tree.used + sample.frames + sample.open > room)
            break;
        if (stack >= 0 && outer[stack] >= 0)
            sample.cut = depth[outer[stack]] + 1;
        int64_t known = sample.open ? 0 : adopted, first = sample.frames;
        for (; stack >= known; stack = parent[stack])
            path[--first] = frame[stack];
        if (sample.open)
            found[pair] = interleave(&tree, &sample, anchors);
        else
            found[pair] = push_all(&tree, stack, path, first, sample.frames);
    }
    *used = tree.used;
    return pair;
}
