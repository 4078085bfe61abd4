// Trains a perceptron on MNIST with oneDNN, and says by layerscope's C interface what it does.
//
//     ./mlp 128 64                        records itself, into mlp.layerscope
//     layerscope run -- ./mlp 128 64      the same with the primitives of oneDNN below each range
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>

#include <layerscope.hpp>

#include "options.hpp"
#include "training.hpp"

static const layerscope::Domain domain("mlp");

static size_t train_epoch(Network &network, Batches &batches, float learning_rate) {
    static layerscope::Counter loss(domain, "loss_millionths");
    for (size_t i = 0; i < batches.size(); i++) {
        layerscope::Range load(domain, "load");
        batches.load(i, network.input());
        load.end();

        layerscope::Range forward(domain, "forward");
        network.forward();
        forward.end();

        layerscope::Range backward(domain, "backward");
        network.backward(batches.labels);
        backward.end();

        layerscope::Range update(domain, "update");
        network.update(learning_rate);
        update.end();

        loss = std::lround(network.loss(batches.labels) * 1e6F);
        layerscope_step();
    }
    return batches.size() * batches.labels.size();
}

static void train(const Options &options) {
    mnist::Digits digits(options.data, "train"), unseen(options.data, "t10k");
    Batches batches(digits, options.batch, options.limit), others(unseen, options.batch, 0);
    Network network(options.widths(), options.batch, static_cast<unsigned>(options.seed));
    std::mt19937 random(static_cast<unsigned>(options.seed));

    for (long epoch = 0; epoch < options.epochs; epoch++) {
        batches.shuffle(random);
        auto begin = Clock::now();
        size_t samples = train_epoch(network, batches, options.learning_rate);
        auto took = Clock::now() - begin;
        layerscope::Range test(domain, "test");
        say_epoch(epoch, samples, took, accuracy(network, others));
    }
}

int main(int count, char **words) {
    try {
        Options options(count, words);
        const char *keys[] = {"profile_all", "aggregate_stats", "filename"};
        const char *values[] = {"True", "True", "mlp.json"};
        // To train is what it is for: what cannot be recorded is said, and no more.
        if (layerscope_set_config(3, keys, values) || layerscope_set_state("run"))
            std::fprintf(stderr, "%s: not recorded: %s\n", words[0], layerscope_error());
        train(options);
        layerscope_set_state("stop");
        if (layerscope_dump(1))
            std::fprintf(stderr, "%s: not written: %s\n", words[0], layerscope_error());
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", words[0], error.what());
        return 2;
    }
    return 0;
}
