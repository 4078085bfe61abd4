// C++: exceptions on their way, virtual calls, standard algorithms, function objects, threads.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
void recorder_start(const char *path, unsigned samples);
void recorder_thread(void);
int recorder_wants_more(void);
void recorder_finish(void);
}

static volatile std::uint64_t sink;

struct Shape {
    virtual ~Shape() { sink = sink + 1; }
    virtual double area(std::uint64_t n) const = 0;
};

struct Square : Shape {
    double area(std::uint64_t n) const override {
        alignas(64) volatile double sides[8] = {};
        for (std::uint64_t i = 0; i < n % 300; i++)
            sides[i % 8] = sides[i % 8] + 0.5 * double(i);
        return sides[n % 8];
    }
};

struct Circle : Shape {
    std::string name = "a circle whose name is long enough for the heap";
    double area(std::uint64_t n) const override { return double(name.find('h', n % 10)) * 3.14; }
};

static std::uint64_t thrower(std::uint64_t n, int depth) {
    std::string kept(n % 50 + 20, 'x');
    if (depth == 0)
        throw std::runtime_error(kept);
    return thrower(n, depth - 1) + kept.size();
}

static std::uint64_t caught(std::uint64_t n) {
    try {
        return thrower(n, int(n % 12));
    } catch (const std::runtime_error &error) {
        return std::string(error.what()).size();
    }
}

static std::uint64_t algorithms(std::uint64_t n) {
    std::vector<std::uint64_t> numbers(200);
    std::map<std::uint64_t, std::string> by_number;
    for (auto &number : numbers)
        number = n = n * 6364136223846793005u + 1442695040888963407u;
    std::sort(numbers.begin(), numbers.end(), [](auto a, auto b) { return a % 1000 < b % 1000; });
    std::function<std::uint64_t(std::uint64_t)> again = [&](std::uint64_t i) -> std::uint64_t {
        by_number[numbers[i]] = std::to_string(i);
        return i ? again(i - 1) + 1 : by_number.size();
    };
    return again(numbers.size() - 1);
}

static void work(std::uint64_t seed) {
    std::unique_ptr<Shape> shapes[] = {std::make_unique<Square>(), std::make_unique<Circle>()};
    sink = sink + std::uint64_t(shapes[seed % 2]->area(seed)) + caught(seed) + algorithms(seed);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    recorder_start(argv[1], unsigned(std::atoi(argv[2])));
    std::thread other([] {
        recorder_thread();
        for (std::uint64_t i = 1; recorder_wants_more(); i += 2)
            work(i * 31);
        std::this_thread::sleep_for(std::chrono::hours(1)); // its stack stays
    });
    other.detach();
    for (std::uint64_t i = 0; recorder_wants_more(); i++)
        work(i);
    recorder_finish();
}
