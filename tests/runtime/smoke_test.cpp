// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/runtime.hpp>

#include "../support/kernels.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace reprise;

TEST_CASE("a launch reads what was created and writes what is read back [B264] [B265]",
          "[runtime]") {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  Client client = device.client();
  const auto lhs = client.create<float>({0, 1, 2});
  const auto rhs = client.create<float>({4, 4, 4});
  const auto sum = client.empty<float>(3);
  CHECK(client.read(lhs) == std::vector<float>{0, 1, 2});
  client.launch(test::add, grid_for(3), lhs, rhs, sum);
  CHECK(client.read(sum) == std::vector<float>{4, 5, 6});
}

TEST_CASE("a captured launch runs once for each replay and not before [B90] [B96]", "[runtime]") {
  Runtime runtime;
  Client client = runtime.open("cpu:0").client();
  const auto in = client.create<float>({1, 2, 3, 4});
  const auto out = client.zeros<float>(4);
  Graph graph = client.capture([&](Client& c) { c.launch(test::add_one, grid_for(4), in, out); });
  CHECK(client.read(out) == std::vector<float>{0, 0, 0, 0});
  graph.replay();
  CHECK(client.read(out) == std::vector<float>{2, 3, 4, 5});
  graph.replay();
  CHECK(client.read(out) == std::vector<float>{2, 3, 4, 5});
  client.write(in, std::vector<float>{10, 20, 30, 40});
  graph.replay();
  CHECK(client.read(out) == std::vector<float>{11, 21, 31, 41});
}
