// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

// A text of anybody's is refused or is a graph, which has one text.

namespace {

using namespace reprise;

const Kernel scale{"scale", [](const Block&, In<float>, Out<float>, float) {}};
const Kernel mark{"mark", [](const Block&, Update<std::uint32_t>) {}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<KernelRef> kernels{scale.definition(), mark.definition()};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const GraphFile file = load_graph(text, kernels);
    const std::string saved = save_graph(file.spec, file.name);
    const GraphFile again = load_graph(saved, kernels);
    if (save_graph(again.spec, again.name) != saved) std::abort();
    if (file.spec.node_count() <= 64) (void)file.spec.order();
  } catch (const Failure&) {
  }
  return 0;
}
