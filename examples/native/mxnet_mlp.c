/* Trains a perceptron on MNIST with MXNet, through MXNet's C interface: the header is in its wheels, the C++ package is
 * not.
 *
 *     ./mxnet_mlp --data examples/data/mnist 128 64     MNIST, or a data set in its format; without --data, patterns
 *                                                       that it makes up
 *     ./mxnet_mlp --profile new                         with MXNet's own profiler, which writes mxnet_mlp.json
 *     ./mxnet_mlp --profile new --statistics            what it has counted is printed at the end, as JSON
 *     layerscope run -- ./mxnet_mlp                     recorded, with --profile or without */
#include <mxnet/c_api.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef MXNET_MAJOR
#error "tell the version of MXNet: -DMXNET_MAJOR=1 or -DMXNET_MAJOR=2 (examples/native/build.py reads it)"
#endif

enum { PIXELS = 28 * 28, CLASSES = 10, MOST_LAYERS = 8, MADE_UP_TRAIN = 6000, MADE_UP_TEST = 1000 };
static const float MEAN = 0.1307F, DEVIATION = 0.3081F; /* of MNIST's training pixels */
static const char *program;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s%s\n", program, what, why);
    exit(2);
}

/* Every function of MXNet returns 0, or says by MXGetLastError why not. */
#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        if (call)                                                                                                     \
            fail(#call ": ", MXGetLastError());                                                                       \
    } while (0)

/* --- The command line -------------------------------------------------------------------------------------------- */

/* How the program drives MXNet's profiler. OLD: by the names of before MXNet 1.1. */
typedef enum { NO_PROFILER, OLD_NAMES, NEW_NAMES } profiling;

typedef struct {
    const char *data, *profile_file;
    long epochs, batch, limit, seed;
    float learning_rate;
    profiling profile;
    int statistics; /* MXNet counts operators too, and executes each alone for it */
    long widths[MOST_LAYERS]; /* inputs, hidden layers, classes */
    int layers;
} options;

static long number(const char *what, const char *text, long least) {
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < least) {
        fprintf(stderr, "%s: %s wants a whole number from %ld, not %s\n", program, what, least, text);
        exit(2);
    }
    return value;
}

static profiling names_of(const char *text) {
    if (strcmp(text, "old") && strcmp(text, "new"))
        fail("--profile wants old or new, not ", text);
    return *text == 'o' ? OLD_NAMES : NEW_NAMES;
}

static void take(options *o, const char *option, const char *value) {
    if (!strcmp(option, "--data"))
        o->data = value;
    else if (!strcmp(option, "--epochs"))
        o->epochs = number(option, value, 1);
    else if (!strcmp(option, "--batch-size"))
        o->batch = number(option, value, 1);
    else if (!strcmp(option, "--limit"))
        o->limit = number(option, value, 0);
    else if (!strcmp(option, "--seed"))
        o->seed = number(option, value, 0);
    else if (!strcmp(option, "--learning-rate"))
        o->learning_rate = strtof(value, NULL);
    else if (!strcmp(option, "--profile"))
        o->profile = names_of(value);
    else if (!strcmp(option, "--profile-file"))
        o->profile_file = value;
    else
        fail("there is no option ", option);
}

static void add_layer(options *o, long width) {
    if (o->layers == MOST_LAYERS)
        fail("there are too many layers", "");
    o->widths[o->layers++] = width;
}

static options read_options(int count, char **words) {
    options o = {.profile_file = "mxnet_mlp.json", .epochs = 10, .batch = 100, .seed = 1, .learning_rate = 0.1F};
    add_layer(&o, PIXELS);
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "--help")) {
            printf("usage: %s [--data DIR] [--epochs N] [--batch-size N] [--limit BATCHES] [--seed N]\n"
                   "       [--learning-rate RATE] [--profile old|new] [--profile-file FILE] [--statistics]\n"
                   "       [HIDDEN ...]\n",
                   program);
            exit(0);
        }
        if (!strcmp(words[i], "--statistics")) {
            o.statistics = 1;
            continue;
        }
        if (strncmp(words[i], "--", 2)) {
            add_layer(&o, number(words[i], words[i], 1));
            continue;
        }
        if (i + 1 == count)
            fail(words[i], " needs a value");
        take(&o, words[i], words[i + 1]);
        i++;
    }
    if (o.layers == 1) {
        add_layer(&o, 128);
        add_layer(&o, 64);
    }
    add_layer(&o, CLASSES);
    return o;
}

/* --- The data ---------------------------------------------------------------------------------------------------- */

/* A data set: pixels as the network takes them, and classes. */
typedef struct {
    float *images, *labels;
    long size;
} digits;

static void *memory(size_t bytes) {
    void *found = malloc(bytes ? bytes : 1);
    if (!found)
        fail("there is no memory", "");
    return found;
}

/* The same numbers on every machine, evenly in [0, 1). */
static float random_number(unsigned long long *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (float)(*state >> 40) / (float)(1 << 24);
}

static digits new_digits(long size) {
    size_t count = (size_t)size;
    return (digits){memory(count * PIXELS * sizeof(float)), memory(count * sizeof(float)), size};
}

/* A pattern for each class, in noise. */
static digits made_up(long size, unsigned long long seed) {
    digits d = new_digits(size);
    unsigned long long of_pattern = 7, state = seed;
    float pattern[CLASSES][PIXELS];
    for (int i = 0; i < CLASSES * PIXELS; i++)
        pattern[i / PIXELS][i % PIXELS] = random_number(&of_pattern) < 0.2F;
    for (long i = 0; i < size; i++) {
        int class = (int)(random_number(&state) * CLASSES);
        d.labels[i] = (float)class;
        for (int at = 0; at < PIXELS; at++) {
            float ink = 0.2F * pattern[class][at] + 0.8F * random_number(&state);
            d.images[i * PIXELS + at] = (ink - MEAN) / DEVIATION;
        }
    }
    return d;
}

/* The bytes of an IDX file behind its header: `*items` items of `item_bytes` each. */
static unsigned char *read_idx(const char *folder, const char *part, const char *kind, size_t item_bytes, long *items) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%s-ubyte", folder, part, kind);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path, " cannot be read; python3 examples/make_digits.py draws digits");
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    unsigned char *all = memory(bytes > 0 ? (size_t)bytes : 0);
    size_t have = fread(all, 1, bytes > 0 ? (size_t)bytes : 0, file);
    fclose(file);
    size_t header = have < 8 ? 0 : 4 + 4 * (size_t)all[3];
    int is_idx = header >= 8 && have >= header && !all[0] && !all[1] && all[2] == 8;
    *items = is_idx ? (long)all[4] << 24 | (long)all[5] << 16 | (long)all[6] << 8 | (long)all[7] : 0;
    if (!is_idx || have != header + (size_t)*items * item_bytes)
        fail(path, " is not an IDX file of unsigned bytes, or not the whole of one");
    memmove(all, all + header, have - header);
    return all;
}

/* One part, "train" or "t10k", of the data set in a folder. */
static digits read_digits(const char *folder, const char *part) {
    long images, labels;
    unsigned char *pixels = read_idx(folder, part, "images-idx3", PIXELS, &images);
    unsigned char *classes = read_idx(folder, part, "labels-idx1", 1, &labels);
    if (images != labels)
        fail(folder, " does not have as many labels as images");
    digits d = new_digits(images);
    for (long i = 0; i < images * PIXELS; i++)
        d.images[i] = ((float)pixels[i] / 255.0F - MEAN) / DEVIATION;
    for (long i = 0; i < images; i++)
        d.labels[i] = classes[i];
    free(pixels);
    free(classes);
    return d;
}

/* --- What differs between the versions of MXNet ------------------------------------------------------------------ */

static NDArrayHandle new_array(const long *shape, int dimensions) {
    NDArrayHandle array;
    int64_t wide[2] = {shape[0], dimensions > 1 ? shape[1] : 0};
#if MXNET_MAJOR >= 2
    CHECK(MXNDArrayCreate64(wide, dimensions, 1, 0, 0, 0, &array));
#else
    uint32_t narrow[2] = {(uint32_t)wide[0], (uint32_t)wide[1]};
    CHECK(MXNDArrayCreateEx(narrow, (uint32_t)dimensions, 1, 0, 0, 0, &array));
#endif
    return array;
}

/* Hand an operator to MXNet's engine. `result`: where it goes, NULL: into an array that is made for it. */
static NDArrayHandle invoke(AtomicSymbolCreator operator, int count, NDArrayHandle *inputs, NDArrayHandle result,
                            const char *key, const char *value) {
    NDArrayHandle *results = result ? &result : NULL;
    int result_count = result != NULL;
#if MXNET_MAJOR >= 2
    const int *storage_types;
    CHECK(MXImperativeInvoke(operator, count, inputs, &result_count, &results, key != NULL, &key, &value,
                             &storage_types));
#else
    CHECK(MXImperativeInvoke(operator, count, inputs, &result_count, &results, key != NULL, &key, &value));
#endif
    return results[0];
}

static const char *statistics(void) {
    const char *text;
#if MXNET_MAJOR >= 2
    CHECK(MXAggregateProfileStatsPrint(&text, 0, 1, 0, 0));
#else
    CHECK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 0, 0));
#endif
    return text;
}

/* --- MXNet's profiler, as its users call it ---------------------------------------------------------------------- */

/* What the program names by it; NULL where it does not profile. */
static struct {
    ProfileHandle domain, batch, loss;
} named;

static void start_profiler(const options *o) {
    const char *keys[] = {"profile_all", "aggregate_stats", "continuous_dump", "filename"};
    const char *values[] = {"True", o->statistics ? "True" : "False", "True", o->profile_file};
    if (o->profile == OLD_NAMES) {
        CHECK(MXSetProfilerConfig(4, keys, values));
        CHECK(MXSetProfilerState(1));
    } else {
        CHECK(MXSetProcessProfilerConfig(4, keys, values, NULL));
        CHECK(MXSetProcessProfilerState(1, 0, NULL));
    }
    CHECK(MXProfileCreateDomain("mxnet_mlp", &named.domain));
    CHECK(MXProfileCreateTask(named.domain, "batch", &named.batch));
    CHECK(MXProfileCreateCounter(named.domain, "loss_millionths", &named.loss));
}

/* The accuracy on unseen digits is no part of the training. */
static void pause_profiler(const options *o, int is_paused) {
    if (o->profile == NO_PROFILER)
        return;
    CHECK(MXNDArrayWaitAll());
    CHECK(o->profile == OLD_NAMES ? MXProfilePause(is_paused) : MXProcessProfilePause(is_paused, 0, NULL));
    CHECK(MXProfileSetMarker(named.domain, is_paused ? "test begins" : "test ends", "process"));
}

static void stop_profiler(const options *o) {
    CHECK(MXNDArrayWaitAll());
    CHECK(o->profile == OLD_NAMES ? MXSetProfilerState(0) : MXSetProcessProfilerState(0, 0, NULL));
    if (o->statistics)
        printf("%s\n", statistics());
    CHECK(o->profile == OLD_NAMES ? MXDumpProfile(1) : MXDumpProcessProfile(1, 0, NULL));
    CHECK(MXProfileDestroyHandle(named.batch));
    CHECK(MXProfileDestroyHandle(named.loss));
}

/* --- The network ------------------------------------------------------------------------------------------------- */

typedef struct {
    AtomicSymbolCreator dense, activation, softmax, update;
    NDArrayHandle images, labels, parameters[2 * MOST_LAYERS]; /* weights and bias of each layer */
    int layers;
    long batch, widths[MOST_LAYERS];
    char rate[32];
} network;

static AtomicSymbolCreator operator_called(const char *name) {
    uint32_t count;
    AtomicSymbolCreator *all;
    CHECK(MXSymbolListAtomicSymbolCreators(&count, &all));
    for (uint32_t i = 0; i < count; i++) {
        const char *its;
        CHECK(MXSymbolGetAtomicSymbolName(all[i], &its));
        if (!strcmp(its, name))
            return all[i];
    }
    fail("this MXNet has no operator ", name);
    return NULL;
}

/* Evenly around 0, as wide as He et al. choose it for ReLU; `spread` 0: all 0. */
static NDArrayHandle parameter(const long *shape, int dimensions, float spread, unsigned long long *state) {
    NDArrayHandle array = new_array(shape, dimensions), gradient = new_array(shape, dimensions);
    size_t count = (size_t)shape[0] * (dimensions > 1 ? (size_t)shape[1] : 1);
    float *values = memory(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = spread * (2 * random_number(state) - 1);
    CHECK(MXNDArraySyncCopyFromCPU(array, values, count));
    free(values);
    uint32_t write = 1;
    CHECK(MXAutogradMarkVariables(1, &array, &write, &gradient));
    CHECK(MXNDArrayFree(gradient)); /* the array has it */
    return array;
}

static network new_network(const options *o) {
    network n = {operator_called("FullyConnected"), operator_called("Activation"), operator_called("SoftmaxOutput"),
                 operator_called("sgd_update"), .layers = o->layers - 1, .batch = o->batch};
    unsigned long long state = (unsigned long long)o->seed;
    memcpy(n.widths, o->widths, sizeof n.widths);
    snprintf(n.rate, sizeof n.rate, "%g", (double)o->learning_rate / (double)o->batch);
    for (int i = 0; i < n.layers; i++) {
        long shape[2] = {o->widths[i + 1], o->widths[i]};
        n.parameters[2 * i] = parameter(shape, 2, sqrtf(6.0F / (float)shape[1]), &state);
        n.parameters[2 * i + 1] = parameter(shape, 1, 0, &state);
    }
    n.images = new_array((long[]){o->batch, PIXELS}, 2);
    n.labels = new_array((long[]){o->batch}, 1);
    return n;
}

static void free_network(network *n) {
    for (int i = 0; i < 2 * n->layers; i++)
        CHECK(MXNDArrayFree(n->parameters[i]));
    CHECK(MXNDArrayFree(n->images));
    CHECK(MXNDArrayFree(n->labels));
}

/* From the images of a batch to the probabilities of the classes; while autograd records, for a backward pass. */
static NDArrayHandle forward(const network *n) {
    NDArrayHandle data = n->images;
    for (int i = 0; i < n->layers; i++) {
        char width[32];
        snprintf(width, sizeof width, "%ld", n->widths[i + 1]);
        NDArrayHandle inputs[] = {data, n->parameters[2 * i], n->parameters[2 * i + 1]};
        NDArrayHandle made = invoke(n->dense, 3, inputs, NULL, "num_hidden", width);
        if (i)
            CHECK(MXNDArrayFree(data));
        data = made;
        if (i + 1 == n->layers)
            break;
        made = invoke(n->activation, 1, &data, NULL, "act_type", "relu");
        CHECK(MXNDArrayFree(data));
        data = made;
    }
    NDArrayHandle result = invoke(n->softmax, 2, (NDArrayHandle[]){data, n->labels}, NULL, NULL, NULL);
    CHECK(MXNDArrayFree(data));
    return result;
}

static void load(const network *n, const digits *d, long batch) {
    CHECK(MXNDArraySyncCopyFromCPU(n->images, d->images + batch * n->batch * PIXELS, (size_t)(n->batch * PIXELS)));
    CHECK(MXNDArraySyncCopyFromCPU(n->labels, d->labels + batch * n->batch, (size_t)n->batch));
}

/* How many of a batch the network takes for what they are; `*loss` gets the mean cross-entropy. */
static long right(const network *n, const digits *d, long batch, NDArrayHandle probabilities, float *loss) {
    float *values = memory((size_t)(n->batch * CLASSES) * sizeof *values), sum = 0;
    long count = 0;
    CHECK(MXNDArraySyncCopyToCPU(probabilities, values, (size_t)(n->batch * CLASSES)));
    for (long row = 0; row < n->batch; row++) {
        const float *its = values + row * CLASSES;
        int class = (int)d->labels[batch * n->batch + row], best = 0;
        for (int i = 1; i < CLASSES; i++)
            best = its[i] > its[best] ? i : best;
        count += best == class;
        sum -= logf(fmaxf(its[class], 1e-30F));
    }
    *loss = sum / (float)n->batch;
    free(values);
    return count;
}

static void train_batch(network *n, const digits *d, long batch) {
    int before;
    float loss;
    load(n, d, batch);
    CHECK(MXAutogradSetIsTraining(1, &before));
    CHECK(MXAutogradSetIsRecording(1, &before));
    NDArrayHandle probabilities = forward(n);
    CHECK(MXAutogradSetIsRecording(0, &before));
    CHECK(MXAutogradBackwardEx(1, &probabilities, NULL, 0, NULL, 0, 0, 1, NULL, NULL));
    CHECK(MXAutogradSetIsTraining(0, &before));
    for (int i = 0; i < 2 * n->layers; i++) {
        NDArrayHandle gradient;
        CHECK(MXNDArrayGetGrad(n->parameters[i], &gradient));
        NDArrayHandle inputs[] = {n->parameters[i], gradient};
        invoke(n->update, 2, inputs, n->parameters[i], "lr", n->rate);
        CHECK(MXNDArrayFree(gradient));
    }
    if (named.loss) {
        right(n, d, batch, probabilities, &loss);
        CHECK(MXProfileSetCounter(named.loss, (uint64_t)(loss * 1e6F)));
    }
    CHECK(MXNDArrayFree(probabilities));
}

/* The samples of an epoch. */
static long train_epoch(network *n, const digits *d, long limit) {
    long batches = d->size / n->batch;
    batches = limit && limit < batches ? limit : batches;
    for (long i = 0; i < batches; i++) {
        if (named.batch)
            CHECK(MXProfileDurationStart(named.batch));
        train_batch(n, d, i);
        if (named.batch)
            CHECK(MXProfileDurationStop(named.batch));
    }
    CHECK(MXNDArrayWaitAll());
    return batches * n->batch;
}

static double accuracy(const network *n, const digits *d) {
    long count = 0, batches = d->size / n->batch;
    float loss;
    for (long i = 0; i < batches; i++) {
        load(n, d, i);
        NDArrayHandle probabilities = forward(n);
        count += right(n, d, i, probabilities, &loss);
        CHECK(MXNDArrayFree(probabilities));
    }
    return (double)count / (double)(batches * n->batch);
}

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **words) {
    program = words[0];
    options o = read_options(count, words);
    digits train = o.data ? read_digits(o.data, "train") : made_up(MADE_UP_TRAIN, 1);
    digits test = o.data ? read_digits(o.data, "t10k") : made_up(MADE_UP_TEST, 2);
    if (o.batch > train.size || o.batch > test.size)
        fail("there are fewer images than a batch has", "");
    network n = new_network(&o);
    if (o.profile != NO_PROFILER)
        start_profiler(&o);
    for (long epoch = 0; epoch < o.epochs; epoch++) {
        double begin = seconds();
        long samples = train_epoch(&n, &train, o.limit);
        double took = seconds() - begin;
        pause_profiler(&o, 1);
        double share = accuracy(&n, &test);
        pause_profiler(&o, 0);
        printf("Epoch: %ld %.1f samples/sec Accuracy: %.4f\n", epoch, (double)samples / took, share);
        fflush(stdout);
    }
    if (o.profile != NO_PROFILER)
        stop_profiler(&o);
    free_network(&n);
    CHECK(MXNDArrayWaitAll());
    CHECK(MXNotifyShutdown());
    return 0;
}
