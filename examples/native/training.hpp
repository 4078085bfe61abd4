// What the two examples share beside the network: batches in a random order, the accuracy, and the words of an epoch.
#ifndef TRAINING_HPP
#define TRAINING_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "mnist.hpp"
#include "network.hpp"

// Goes through a data set batch by batch; what does not fill a batch at the end is left out.
class Batches {
  public:
    Batches(const mnist::Digits &digits, long batch, long limit)
        : labels(static_cast<size_t>(batch)), digits_(digits), batch_(static_cast<size_t>(batch)),
          order_(digits.size()) {
        std::iota(order_.begin(), order_.end(), size_t{0});
        size_t all = order_.size() / batch_;
        batches_ = limit ? std::min(all, static_cast<size_t>(limit)) : all;
        if (!batches_)
            throw std::runtime_error("there are fewer images than a batch has");
    }

    void shuffle(std::mt19937 &random) { std::shuffle(order_.begin(), order_.end(), random); }

    size_t size() const { return batches_; }

    // Batch number `index`: its images into `input`, its labels into `labels`.
    void load(size_t index, float *input) {
        for (size_t i = 0; i < batch_; i++) {
            size_t image = order_[index * batch_ + i];
            digits_.copy_image(image, input + i * mnist::PIXELS);
            labels[i] = digits_.labels[image];
        }
    }

    std::vector<uint8_t> labels;

  private:
    const mnist::Digits &digits_;
    size_t batch_, batches_ = 0;
    std::vector<size_t> order_;
};

// The share of a data set that the network takes for what it is.
inline double accuracy(Network &network, Batches &batches) {
    long right = 0;
    for (size_t i = 0; i < batches.size(); i++) {
        batches.load(i, network.input());
        network.forward();
        right += network.right(batches.labels);
    }
    return static_cast<double>(right) / static_cast<double>(batches.size() * batches.labels.size());
}

using Clock = std::chrono::steady_clock;

inline void say_epoch(long epoch, size_t samples, Clock::duration took, double accuracy) {
    double seconds = std::chrono::duration<double>(took).count();
    std::printf("Epoch: %ld %.1f samples/sec Accuracy: %.4f\n", epoch, static_cast<double>(samples) / seconds,
                accuracy);
    std::fflush(stdout);
}

#endif
