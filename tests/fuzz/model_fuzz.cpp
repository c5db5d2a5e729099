// SPDX-License-Identifier: Apache-2.0
#include "support/model_ops.hpp"
#include "support/model_run.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The operations of the model test, chosen by coverage.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reprise::test::model;
  const Sequence sequence = decode({data, size});
  const Outcome outcome = run(sequence);
  if (outcome.problem.empty()) return 0;
  std::fputs(report(sequence, outcome.problem).c_str(), stderr);
  std::abort();
}
