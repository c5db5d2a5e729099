// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_file.hpp>

#include <reprise/runtime/graph_builder.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/code_of.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace reprise;
using test::code_of;
using Floats = std::vector<float>;

namespace {

const Kernel scale{"scale", [](const Block&, In<float> in, Out<float> out, float by) {
                     for (std::size_t i = 0; i < out.size(); ++i) out[i] = by * in[i];
                   }};
const Kernel add_to{"add_to", [](const Block&, In<float> in, InOut<float> sum, std::uint8_t often) {
                      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += in[i] * often;
                    }};
const Kernel mark{
    "mark", [](const Block& block, Update<std::uint32_t> marks) { marks[block.index.x] = 7; }};

std::vector<KernelRef> kernels() {
  return {scale.definition(), add_to.definition(), mark.definition()};
}

/// Every kind of node that has a text.
GraphBuilder make_graph() {
  GraphBuilder builder({.name = "four \"kinds\""});
  const auto x = builder.placeholder<float>("x", 4);
  const auto y = builder.placeholder<float>("y", 4);
  const auto sum = builder.placeholder<float>("sum", 4);
  const auto marks = builder.placeholder<std::uint32_t>("marks", 8);
  const auto count = builder.placeholder<std::uint32_t>("count", 1);
  builder.add_fill(sum, 0.5f);
  builder.add_kernel(scale, Grid{1}, x, y, 1.25f);
  const GraphNode meet = builder.add_empty();
  const GraphNode last =
      builder.add_kernel(add_to, Grid{Dim3{1}, Dim3{32}}, y, sum, std::uint8_t{3});
  builder.add_copy(x.slice(0, 2), y.slice(2, 2));
  const GraphNode some = builder.add_kernel(mark, IndirectGrid{Grid{8}, count}, marks);
  builder.set_name(some, "as many as there are");
  builder.depend(last, meet);
  builder.depend(some, {last, meet});
  return builder;
}

Floats run(const GraphBuilder& builder) {
  Runtime runtime;
  Device device = runtime.open("cpu:0");
  const Client client = device.client();
  const auto x = client.create<float>({1, 2, 3, 4});
  const auto y = client.empty<float>(4);
  const auto sum = client.empty<float>(4);
  const auto marks = client.zeros<std::uint32_t>(8);
  const auto count = client.create<std::uint32_t>({3});
  const Graph graph = builder.instantiate(client, {{builder.find<float>("x"), x},
                                                   {builder.find<float>("y"), y},
                                                   {builder.find<float>("sum"), sum},
                                                   {builder.find<std::uint32_t>("marks"), marks},
                                                   {builder.find<std::uint32_t>("count"), count}});
  graph.run();
  Floats all = client.read(x);
  for (const float value : client.read(sum)) all.push_back(value);
  for (const std::uint32_t value : client.read(marks)) all.push_back(static_cast<float>(value));
  return all;
}

Errc load_code(const std::string& text) {
  return code_of([&] { (void)load_graph(text, kernels()); });
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a graph that was saved and loaded is the same graph, and does the same", "[runtime]") {
  const GraphBuilder built = make_graph();
  const std::string text = save_graph(built.spec(), "four \"kinds\"");
  GraphFile file = load_graph(text, kernels());
  CHECK(file.name == "four \"kinds\"");
  CHECK(save_graph(file.spec, file.name) == text);
  CHECK(file.spec.to_dot() == built.spec().to_dot());
  const GraphBuilder loaded(std::move(file.spec), file.name);
  const Floats expected{3.75f, 5.0f, 3, 4, 4.25f, 8.0f, 11.75f, 15.5f, 7, 7, 7, 0, 0, 0, 0, 0};
  CHECK(run(built) == expected);
  CHECK(run(loaded) == expected);
}

TEST_CASE("every beginning of a file is refused, and so is each byte too many", "[runtime]") {
  const std::string text = save_graph(make_graph().spec());
  for (std::size_t size = 0; size < text.size(); ++size) {
    CHECK(load_code(text.substr(0, size)) == Errc::bad_format);
  }
  CHECK(load_code(text + "x") == Errc::bad_format);
}

TEST_CASE("each field of a file is checked, and the failure says where", "[runtime]") {
  const std::string text = save_graph(make_graph().spec());
  const std::pair<const char*, const char*> changes[]{
      {R"("format":"reprise graph")", R"("format":"other")"},
      {R"("version":1)", R"("version":2)"},
      {R"("version":1)", R"("version":"1")"},
      {R"("version":1)", R"("version":-1)"},
      {R"("version":1,)", ""},
      {R"("version":1)", R"("version":1,"colour":"red")"},
      {R"("edges":"derived")", R"("edges":"none")"},
      {R"("bytes":16)", R"("bytes":1e30)"},
      {R"("bytes":16)", R"("bytes":18446744073709551615)"},
      {R"("element_bytes":4)", R"("element_bytes":4294967296)"},
      {R"("kind":"fill")", R"("kind":"burn")"},
      {R"("kind":"empty")", R"("kind":"empty","pattern":"00")"},
      {R"("pattern":"0000003f")", R"("pattern":"0000003g")"},
      {R"("pattern":"0000003f")", R"("pattern":"")"},
      {R"("pattern":"0000003f")", R"("pattern":"000000000000000000")"},
      {R"("blocks":[1,1,1])", R"("blocks":[1,1])"},
      {R"("values":["0000a03f"])", R"("values":[])"},
      {R"("values":["0000a03f"])", R"("values":["0000a03f","00"])"},
      {R"("values":["0000a03f"])", R"("values":["a03f"])"},
      {R"("uses":[[2,0,16]])", R"("uses":[])"},
      {R"("uses":[[2,0,16]])", R"("uses":[[2,16,0]])"},
      {R"("uses":[[2,0,16]])", R"("uses":[[2,0]])"},
      {R"("uses":[[2,0,16]])", R"("uses":[2])"},
      {R"("count":true)", R"("count":1)"},
      {R"("after":[2])", R"("after":["2"])"},
  };
  for (const auto& [from, to] : changes) {
    CAPTURE(from, to);
    CHECK(load_code(with(text, from, to)) == Errc::bad_format);
  }
  CHECK(load_code(with(text, R"("uses":[[2,0,16]])", R"("uses":[[9,0,16]])")) ==
        Errc::out_of_range);
  CHECK(load_code(with(text, R"("uses":[[2,0,16]])", R"("uses":[[2,0,17]])")) ==
        Errc::out_of_range);
  CHECK(load_code(with(text, R"("uses":[[2,0,16]])", R"("uses":[[2,0,3]])")) == Errc::misaligned);
  CHECK(load_code(with(text, R"("after":[2])", R"("after":[6])")) == Errc::out_of_range);
  CHECK(load_code(with(text, R"("after":[2])", R"("after":[3])")) == Errc::invalid_argument);
  CHECK(load_code(with(text, R"("element_bytes":4)", R"("element_bytes":0)")) ==
        Errc::invalid_argument);
  try {
    (void)load_graph(with(text, R"("after":[2])", R"("after":[true])"), kernels());
    FAIL("loaded");
  } catch (const Failure& failure) {
    CHECK(failure.record().message == "node 3, field 'after' is no number from 0 on");
  }
}

TEST_CASE("a kernel that is missing, given twice or has another signature is told by its name",
          "[runtime]") {
  const std::string text = save_graph(make_graph().spec());
  CHECK(code_of([&] { (void)load_graph(text, {}); }) == Errc::no_such_kernel);
  const Kernel other{"scale", [](const Block&, In<float>, Out<float>, double) {}};
  const std::vector<KernelRef> changed{other.definition(), add_to.definition(), mark.definition()};
  try {
    (void)load_graph(text, changed);
    FAIL("loaded");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::size_mismatch);
    CHECK(failure.record().node == "scale");
    CHECK(failure.record().message == "the kernel takes (in4 out4 8), not (in4 out4 4)");
  }
  const std::vector<KernelRef> twice{scale.definition(), other.definition()};
  CHECK(code_of([&] { (void)load_graph(text, twice); }) == Errc::invalid_argument);
}

TEST_CASE("a cycle in a file is loaded and told, node by node, when the order is asked for [O5]",
          "[runtime]") {
  const std::string text = save_graph(make_graph().spec());
  const GraphFile file =
      load_graph(with(text, R"({"kind":"empty"})", R"({"kind":"empty","after":[3]})"), kernels());
  CHECK(code_of([&] { (void)file.spec.order(); }) == Errc::invalid_argument);
}

TEST_CASE("what has no text is refused by name, and so is a builder of it", "[runtime]") {
  GraphBuilder builder;
  builder.set_name(builder.add_host({}, [] {}), "a call");
  try {
    (void)save_graph(builder.spec());
    FAIL("saved");
  } catch (const Failure& failure) {
    CHECK(failure.errc() == Errc::unsupported);
    CHECK(failure.record().node == "a call");
  }
  CHECK(code_of([&] { (void)GraphBuilder(builder.spec()); }) == Errc::unsupported);
}

TEST_CASE("placeholders are found by name and type", "[runtime]") {
  GraphBuilder builder;
  (void)builder.placeholder<float>("x", 4);
  (void)builder.placeholder<float>("twice", 4);
  (void)builder.placeholder<float>("twice", 4);
  CHECK(builder.find<float>("x").size() == 4);
  CHECK(code_of([&] { (void)builder.find<float>("y"); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)builder.find<float>("twice"); }) == Errc::invalid_argument);
  CHECK(code_of([&] { (void)builder.find<double>("x"); }) == Errc::size_mismatch);
}

TEST_CASE("a text that nests deeply is refused without following it", "[runtime]") {
  CHECK(load_code(std::string(1'000'000, '[')) == Errc::bad_format);
}
