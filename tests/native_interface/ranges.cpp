/* What layerscope.hpp has, once each; the numbers that it prints are for the test. */
#include "layerscope.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

static const layerscope::Domain network("network");

static void fails() {
    layerscope::Range range(network, "ended by an exception");
    throw std::runtime_error("expected");
}

int main() {
    if (layerscope::set_config({{"filename", "ranges.json"}, {"profile_all", "true"}}))
        return 1;
    layerscope::Counter images(network, "images"), plain("plain");
    images += 2; /* kept while nothing is recorded */
    {
        layerscope::Recording recording;
        layerscope::Frame epoch(network, "epoch");
        {
            layerscope::Range outer(std::string("outer"));
            layerscope::Range inner(network, std::string("inner"));
            inner.end();
            inner.end();
        }
        layerscope::Range carried("carried");
        std::thread([](layerscope::Range) { layerscope::marker("in thread"); }, std::move(carried)).join();
        layerscope::Range replaced("replaced");
        replaced = layerscope::Range(network, "replacement");
        try {
            fails();
        } catch (const std::runtime_error &) {
        }
        images += 3;
        ++images;
        images -= 10;
        plain = 7;
        layerscope::marker(network, "saved", LAYERSCOPE_GLOBAL);
        layerscope_step();
    }
    std::printf("%lld %lld\n", static_cast<long long>(images.value()), static_cast<long long>(plain.value()));
    return layerscope_dump(1) ? 1 : 0;
}
