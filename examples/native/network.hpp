// A multilayer perceptron on oneDNN, version 2 or 3: dense layers with ReLU between them, softmax with cross-entropy
// at the end, trained by plain gradient descent.
#ifndef NETWORK_HPP
#define NETWORK_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

namespace onednn {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

// Version 3 took the operation descriptors away, and gave source and destination a descriptor each.
#if DNNL_VERSION_MAJOR >= 3
template <class Primitive, class... Words>
typename Primitive::primitive_desc describe(const dnnl::engine &engine, Words &&...words) {
    return {engine, std::forward<Words>(words)...};
}

template <class Primitive, class Forward, class... Words>
typename Primitive::primitive_desc describe_backward(const dnnl::engine &engine, const Forward &forward,
                                                     Words &&...words) {
    return {engine, std::forward<Words>(words)..., forward};
}

#define OF_BOTH(descriptor) descriptor, descriptor
#define SOFTMAX_ALGORITHM dnnl::algorithm::softmax_accurate,
#else
template <class Primitive, class... Words>
typename Primitive::primitive_desc describe(const dnnl::engine &engine, Words &&...words) {
    return {typename Primitive::desc(std::forward<Words>(words)...), engine};
}

template <class Primitive, class Forward, class... Words>
typename Primitive::primitive_desc describe_backward(const dnnl::engine &engine, const Forward &forward,
                                                     Words &&...words) {
    return {typename Primitive::desc(std::forward<Words>(words)...), engine, forward};
}

#define OF_BOTH(descriptor) descriptor
#define SOFTMAX_ALGORITHM
#endif

// A matrix or a vector of floats in row-major order, in memory of oneDNN's.
inline memory tensor(const dnnl::engine &engine, const memory::dims &shape) {
    auto tag = shape.size() == 1 ? memory::format_tag::a : memory::format_tag::ab;
    memory result({shape, memory::data_type::f32, tag}, engine);
    std::fill_n(static_cast<float *>(result.get_data_handle()), result.get_desc().get_size() / sizeof(float), 0.0F);
    return result;
}

inline float *values(const memory &tensor) { return static_cast<float *>(tensor.get_data_handle()); }

inline size_t count(const memory &tensor) { return tensor.get_desc().get_size() / sizeof(float); }

// A primitive with what it works on.
struct Call {
    dnnl::primitive primitive;
    Arguments arguments;
};

}  // namespace onednn

class Network {
  public:
    // `widths`: inputs, hidden layers, classes. Weights as He et al. choose them for ReLU.
    Network(const std::vector<long> &widths, long batch, unsigned seed)
        : batch_(batch), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
        input_ = onednn::tensor(engine_, {batch, widths.front()});
        onednn::memory data = input_, gradient;
        std::mt19937 random(seed);
        for (size_t i = 1; i < widths.size(); i++) {
            bool is_last = i + 1 == widths.size();
            auto weights = parameter({widths[i], widths[i - 1]}), bias = parameter({widths[i]});
            std::normal_distribution<float> spread(0.0F, std::sqrt(2.0F / static_cast<float>(widths[i - 1])));
            std::generate_n(onednn::values(weights.value), onednn::count(weights.value),
                            [&] { return spread(random); });
            auto output = onednn::tensor(engine_, {batch, widths[i]});
            auto output_gradient = onednn::tensor(engine_, {batch, widths[i]});
            std::vector<onednn::Call> backward;
            add_dense(data, gradient, weights, bias, output, output_gradient, backward);
            if (is_last)
                add_softmax(output);
            else
                add_relu(output, output_gradient, backward);
            backward_.insert(backward_.begin(), backward.rbegin(), backward.rend());
            data = output;
            gradient = output_gradient;
        }
        output_ = data;
        output_gradient_ = gradient;
    }

    // Where the images of a batch go: (batch, inputs).
    float *input() { return onednn::values(input_); }

    // From the input to the probabilities of the classes.
    void forward() { run(forward_); }

    // The mean cross-entropy of the last `forward` for these labels.
    float loss(const std::vector<uint8_t> &labels) const {
        float sum = 0.0F;
        for (long row = 0; row < batch_; row++)
            sum -= std::log(std::max(probabilities(row)[labels[static_cast<size_t>(row)]], 1e-30F));
        return sum / static_cast<float>(batch_);
    }

    // The gradients of that loss.
    void backward(const std::vector<uint8_t> &labels) {
        // Of cross-entropy behind softmax: the probabilities, less one for the right class.
        float *gradient = onednn::values(output_gradient_);
        float share = 1.0F / static_cast<float>(batch_);
        for (long row = 0; row < batch_; row++)
            for (long k = 0; k < classes(); k++)
                gradient[row * classes() + k] =
                    (probabilities(row)[k] - (k == labels[static_cast<size_t>(row)] ? 1.0F : 0.0F)) * share;
        run(backward_);
    }

    // One step of gradient descent.
    void update(float learning_rate) {
        for (auto &parameter : parameters_) {
            float *value = onednn::values(parameter.value);
            const float *gradient = onednn::values(parameter.gradient);
            size_t number = onednn::count(parameter.value);
            for (size_t i = 0; i < number; i++)
                value[i] -= learning_rate * gradient[i];
        }
    }

    // How many of the last batch it takes for what they are.
    long right(const std::vector<uint8_t> &labels) const {
        long number = 0;
        for (long row = 0; row < batch_; row++) {
            const float *begin = probabilities(row);
            number += std::max_element(begin, begin + classes()) - begin == labels[static_cast<size_t>(row)];
        }
        return number;
    }

  private:
    struct Parameter {
        onednn::memory value, gradient;
    };

    Parameter parameter(const onednn::memory::dims &shape) {
        parameters_.push_back({onednn::tensor(engine_, shape), onednn::tensor(engine_, shape)});
        return parameters_.back();
    }

    // output = data * weights^T + bias. Without `gradient` (the images need none) nothing is computed for it.
    void add_dense(const onednn::memory &data, const onednn::memory &gradient, const Parameter &weights,
                   const Parameter &bias, const onednn::memory &output, const onednn::memory &output_gradient,
                   std::vector<onednn::Call> &backward) {
        using namespace dnnl;
        auto forward = onednn::describe<inner_product_forward>(engine_, prop_kind::forward_training, data.get_desc(),
                                                               weights.value.get_desc(), bias.value.get_desc(),
                                                               output.get_desc());
        forward_.push_back({inner_product_forward(forward),
                            {{DNNL_ARG_SRC, data},
                             {DNNL_ARG_WEIGHTS, weights.value},
                             {DNNL_ARG_BIAS, bias.value},
                             {DNNL_ARG_DST, output}}});
        if (gradient) {
            auto to_data = onednn::describe_backward<inner_product_backward_data>(
                engine_, forward, gradient.get_desc(), weights.value.get_desc(), output_gradient.get_desc());
            backward.push_back({inner_product_backward_data(to_data),
                                {{DNNL_ARG_DIFF_DST, output_gradient},
                                 {DNNL_ARG_WEIGHTS, weights.value},
                                 {DNNL_ARG_DIFF_SRC, gradient}}});
        }
        auto to_weights = onednn::describe_backward<inner_product_backward_weights>(
            engine_, forward, data.get_desc(), weights.gradient.get_desc(), bias.gradient.get_desc(),
            output_gradient.get_desc());
        backward.push_back({inner_product_backward_weights(to_weights),
                            {{DNNL_ARG_SRC, data},
                             {DNNL_ARG_DIFF_DST, output_gradient},
                             {DNNL_ARG_DIFF_WEIGHTS, weights.gradient},
                             {DNNL_ARG_DIFF_BIAS, bias.gradient}}});
    }

    // In place: its backward pass needs the result only.
    void add_relu(const onednn::memory &data, const onednn::memory &gradient, std::vector<onednn::Call> &backward) {
        using namespace dnnl;
        auto kind = algorithm::eltwise_relu_use_dst_for_bwd;
        auto descriptor = data.get_desc();
        auto forward = onednn::describe<eltwise_forward>(engine_, prop_kind::forward_training, kind,
                                                         OF_BOTH(descriptor), 0.0F, 0.0F);
        forward_.push_back({eltwise_forward(forward), {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}});
        auto to_data = onednn::describe_backward<eltwise_backward>(engine_, forward, kind, OF_BOTH(descriptor),
                                                                   descriptor, 0.0F, 0.0F);
        backward.push_back(
            {eltwise_backward(to_data),
             {{DNNL_ARG_DST, data}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}}});
    }

    void add_softmax(const onednn::memory &data) {
        using namespace dnnl;
        auto descriptor = data.get_desc();
        auto forward = onednn::describe<softmax_forward>(engine_, prop_kind::forward_training,
                                                         SOFTMAX_ALGORITHM OF_BOTH(descriptor), 1);
        forward_.push_back({softmax_forward(forward), {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}});
    }

    void run(const std::vector<onednn::Call> &calls) {
        for (const auto &call : calls)
            call.primitive.execute(stream_, call.arguments);
        stream_.wait();
    }

    long classes() const { return static_cast<long>(output_.get_desc().get_size() / sizeof(float)) / batch_; }

    const float *probabilities(long row) const { return onednn::values(output_) + row * classes(); }

    long batch_;
    dnnl::engine engine_;
    dnnl::stream stream_;
    onednn::memory input_, output_, output_gradient_;
    std::vector<Parameter> parameters_;
    std::vector<onednn::Call> forward_, backward_;
};

#endif
