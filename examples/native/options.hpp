// The command line of the examples: options, then the widths of the hidden layers.
#ifndef OPTIONS_HPP
#define OPTIONS_HPP

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "mnist.hpp"

struct Options {
    std::string data = mnist::default_folder();
    long epochs = 10, batch = 100, limit = 0, seed = 1;
    float learning_rate = 0.1F;
    std::vector<long> hidden;

    Options(int count, char **words) {
        for (int i = 1; i < count; i++) {
            std::string word = words[i];
            if (word == "--help") {
                std::printf("usage: %s [--data DIR] [--epochs N] [--batch-size N] [--limit BATCHES] [--seed N]\n"
                            "       [--learning-rate RATE] [HIDDEN ...]\n",
                            words[0]);
                std::exit(0);
            }
            if (word.rfind("--", 0) != 0) {
                hidden.push_back(number(word, word, 1));
                continue;
            }
            if (i + 1 == count)
                throw std::runtime_error(word + " needs a value");
            take(word, words[++i]);
        }
        if (hidden.empty())
            hidden = {128, 64};
    }

    // Inputs, hidden layers, classes.
    std::vector<long> widths() const {
        std::vector<long> all{mnist::PIXELS};
        all.insert(all.end(), hidden.begin(), hidden.end());
        all.push_back(mnist::CLASSES);
        return all;
    }

  private:
    void take(const std::string &option, const std::string &value) {
        if (option == "--data")
            data = value;
        else if (option == "--epochs")
            epochs = number(option, value, 1);
        else if (option == "--batch-size")
            batch = number(option, value, 1);
        else if (option == "--limit")
            limit = number(option, value, 0);
        else if (option == "--seed")
            seed = number(option, value, 0);
        else if (option == "--learning-rate")
            learning_rate = std::strtof(value.c_str(), nullptr);
        else
            throw std::runtime_error("there is no option " + option + "; --help names them");
    }

    static long number(const std::string &what, const std::string &text, long least) {
        char *end = nullptr;
        long value = std::strtol(text.c_str(), &end, 10);
        if (text.empty() || *end || value < least)
            throw std::runtime_error(what + " wants a whole number from " + std::to_string(least) + ", not " + text);
        return value;
    }
};

#endif
