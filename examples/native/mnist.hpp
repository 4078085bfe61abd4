// MNIST, or a data set in its format (IDX), read whole into memory.
#ifndef MNIST_HPP
#define MNIST_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace mnist {

constexpr int PIXELS = 28 * 28;
constexpr int CLASSES = 10;
constexpr float MEAN = 0.1307F, DEVIATION = 0.3081F;  // of MNIST's training pixels

inline uint32_t big_endian(const std::vector<uint8_t> &bytes, size_t at) {
    return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

// The bytes of an IDX file after its header: items of `item_bytes` each.
inline std::vector<uint8_t> read_idx(const std::string &path, size_t item_bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(path + " cannot be read; python3 examples/make_digits.py draws digits, and MNIST's "
                                        "own files have to be unpacked by gunzip");
    std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    size_t header = bytes.size() < 4 ? 0 : 4 + size_t{4} * bytes[3];
    bool is_idx = header >= 8 && bytes.size() >= header && !bytes[0] && !bytes[1] && bytes[2] == 8;
    if (!is_idx || bytes.size() != header + big_endian(bytes, 4) * item_bytes)
        throw std::runtime_error(path + " is not an IDX file of unsigned bytes, or not the whole of one");
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
    return bytes;
}

// The images and labels of one part, "train" or "t10k", of the data set in a folder.
struct Digits {
    std::vector<uint8_t> images, labels;

    Digits(const std::string &folder, const std::string &part)
        : images(read_idx(folder + "/" + part + "-images-idx3-ubyte", PIXELS)),
          labels(read_idx(folder + "/" + part + "-labels-idx1-ubyte", 1)) {
        if (images.size() != labels.size() * PIXELS)
            throw std::runtime_error(folder + " does not have as many labels as images");
    }

    size_t size() const { return labels.size(); }

    // Image `index`, normalised, into PIXELS floats.
    void copy_image(size_t index, float *pixels) const {
        const uint8_t *image = &images[index * PIXELS];
        for (int i = 0; i < PIXELS; i++)
            pixels[i] = (static_cast<float>(image[i]) / 255.0F - MEAN) / DEVIATION;
    }
};

// $MNIST_DIR, or where examples/make_digits.py draws.
inline std::string default_folder() {
    const char *folder = std::getenv("MNIST_DIR");
    return folder && *folder ? folder : "examples/data/mnist";
}

}  // namespace mnist

#endif
