// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>

#include <utility>

namespace reprise::test {

/// The code of the Failure that `function` throws, Errc{} if it throws none.
template <class F>
Errc code_of(F&& function) {
  try {
    std::forward<F>(function)();
  } catch (const Failure& failure) {
    return failure.errc();
  }
  return Errc{};
}

}  // namespace reprise::test
