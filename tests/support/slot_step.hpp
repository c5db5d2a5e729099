// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/kernels.hpp"

#include <cstdint>
#include <vector>

namespace reprise::test {

/// A device of its own runtime and a client of it.
struct Bench {
  explicit Bench(std::uint32_t workers = 1, DeviceOptions options = {}) {
    options.workers = workers;
    device = runtime.open("cpu:0", options);
    client = device.client();
  }
  Runtime runtime;
  Device device;
  Client client;
};

/// out = in + 1; count = count + 1. All three are slots, of two floats and of one.
struct SlotStep {
  SlotStep(const Client& client, SlotPolicy in_policy, SlotPolicy out_policy)
      : in(client.create<float>({1, 1})), out(client.empty<float>(2)),
        count(client.create<float>({0})) {
    graph = client.capture(
        [&](Client& c) {
          c.slot("in", in, in_policy);
          c.slot("out", out, out_policy);
          c.slot("count", count);
          c.launch(add_one, 1, in, out);
          c.launch(add_in_place, 1, count, 1.0f);
        },
        {.name = "step"});
  }
  Array<float> in;
  Array<float> out;
  Array<float> count;
  Graph graph;
};

}  // namespace reprise::test
