/* layerscope from C++ (C++11 and later): ranges that end with their block, counters that count. Nothing here needs more
 * of the library than layerscope.h, and with LAYERSCOPE_DISABLE nothing at all.
 *
 *     layerscope::Domain network("network");
 *     layerscope::Counter images(network, "images");
 *     for (const Batch &batch : data) {
 *         layerscope::Range forward(network, "forward");
 *         ...
 *         forward.end();
 *         images += batch.size();
 *         layerscope_step();
 *     } */
#ifndef LAYERSCOPE_PUBLIC_HPP
#define LAYERSCOPE_PUBLIC_HPP

#include "layerscope.h"

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace layerscope {

/* A group of ranges, counters and markers: the category in traces and tables. */
class Domain {
  public:
    explicit Domain(std::string name) : name_(std::move(name)) {}
    const char *name() const noexcept { return name_.empty() ? nullptr : name_.c_str(); }

  private:
    std::string name_;
};

/* A stretch of time, from its construction to `end` or to the end of its block; it may be moved to another thread. */
class Range {
  public:
    explicit Range(const char *name) noexcept : range_(layerscope_range_begin(nullptr, name)) {}
    Range(const Domain &domain, const char *name) noexcept : range_(layerscope_range_begin(domain.name(), name)) {}
    explicit Range(const std::string &name) noexcept : Range(name.c_str()) {}
    Range(const Domain &domain, const std::string &name) noexcept : Range(domain, name.c_str()) {}
    Range(Range &&other) noexcept : range_(other.range_) { other.range_ = layerscope_range(); }
    Range &operator=(Range &&other) noexcept {
        if (this != &other) {
            end();
            range_ = other.range_;
            other.range_ = layerscope_range();
        }
        return *this;
    }
    Range(const Range &) = delete;
    Range &operator=(const Range &) = delete;
    ~Range() { end(); }

    void end() noexcept {
        layerscope_range_end(range_);
        range_ = layerscope_range();
    }

  protected:
    explicit Range(layerscope_range range) noexcept : range_(range) {}

  private:
    layerscope_range range_;
};

/* One of many alike: an iteration, a picture. */
class Frame : public Range {
  public:
    explicit Frame(const char *name) noexcept : Range(layerscope_frame_begin(nullptr, name)) {}
    Frame(const Domain &domain, const char *name) noexcept : Range(layerscope_frame_begin(domain.name(), name)) {}
};

/* A whole number over time, from any thread. Its value is kept while nothing is recorded. */
class Counter {
  public:
    explicit Counter(std::string name) : name_(std::move(name)) {}
    Counter(const Domain &domain, std::string name)
        : domain_(domain.name() ? domain.name() : ""), name_(std::move(name)) {}
    Counter(const Counter &) = delete;
    Counter &operator=(const Counter &) = delete;

    Counter &operator=(std::int64_t value) noexcept {
        value_.store(value, std::memory_order_relaxed);
        return told(value);
    }
    Counter &operator+=(std::int64_t delta) noexcept {
        return told(value_.fetch_add(delta, std::memory_order_relaxed) + delta);
    }
    Counter &operator-=(std::int64_t delta) noexcept { return *this += -delta; }
    Counter &operator++() noexcept { return *this += 1; }
    Counter &operator--() noexcept { return *this += -1; }
    std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

  private:
    Counter &told(std::int64_t value) noexcept {
        layerscope_counter(domain_.empty() ? nullptr : domain_.c_str(), name_.c_str(), value);
        return *this;
    }
    std::string domain_, name_;
    std::atomic<std::int64_t> value_{0};
};

/* A moment worth a name. */
inline void marker(const Domain &domain, const char *name, layerscope_scope scope = LAYERSCOPE_PROCESS) noexcept {
    layerscope_marker(domain.name(), name, scope);
}
inline void marker(const char *name, layerscope_scope scope = LAYERSCOPE_PROCESS) noexcept {
    layerscope_marker(nullptr, name, scope);
}

/* Set keys: layerscope::set_config({{"filename", "mlp.json"}, {"profile_all", "true"}}). */
inline int set_config(std::initializer_list<std::pair<const char *, std::string>> config) {
    std::vector<const char *> keys, values;
    for (const std::pair<const char *, std::string> &one : config) {
        keys.push_back(one.first);
        values.push_back(one.second.c_str());
    }
    return layerscope_set_config(static_cast<int>(keys.size()), keys.data(), values.data());
}

/* Recorded while it lives: "run" to "stop". */
class Recording {
  public:
    Recording() noexcept { layerscope_set_state("run"); }
    ~Recording() { layerscope_set_state("stop"); }
    Recording(const Recording &) = delete;
    Recording &operator=(const Recording &) = delete;
};

} // namespace layerscope

#endif
