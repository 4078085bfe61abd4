// Trains a perceptron on MNIST with oneDNN, annotated with NVTX alone: nothing in it knows of layerscope.
//
//     layerscope run --step-mark batch -- ./mlp_nvtx 128 64
#include <cstdio>
#include <exception>
#include <random>

#include <nvtx3/nvtx3.hpp>

#include "options.hpp"
#include "training.hpp"

// Ranges of a domain of their own can be told from those of libraries.
struct Mlp {
    static constexpr char const *name{"mlp"};
};
using Range = nvtx3::scoped_range_in<Mlp>;

static size_t train_epoch(Network &network, Batches &batches, float learning_rate) {
    for (size_t i = 0; i < batches.size(); i++) {
        Range batch{"batch"};
        {
            Range range{"load"};
            batches.load(i, network.input());
        }
        {
            Range range{"forward"};
            network.forward();
        }
        {
            Range range{"backward"};
            network.backward(batches.labels);
        }
        {
            Range range{"update"};
            network.update(learning_rate);
        }
        nvtx3::mark_in<Mlp>("loss", nvtx3::payload{network.loss(batches.labels)});
    }
    return batches.size() * batches.labels.size();
}

int main(int count, char **words) {
    try {
        Options options(count, words);
        mnist::Digits train(options.data, "train"), test(options.data, "t10k");
        Batches batches(train, options.batch, options.limit), others(test, options.batch, 0);
        Network network(options.widths(), options.batch, static_cast<unsigned>(options.seed));
        std::mt19937 random(static_cast<unsigned>(options.seed));

        for (long epoch = 0; epoch < options.epochs; epoch++) {
            batches.shuffle(random);
            auto begin = Clock::now();
            size_t samples = train_epoch(network, batches, options.learning_rate);
            auto took = Clock::now() - begin;
            Range range{"test"};
            say_epoch(epoch, samples, took, accuracy(network, others));
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", words[0], error.what());
        return 2;
    }
    return 0;
}
