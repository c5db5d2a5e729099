// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>

#include <string_view>

namespace examples {

/// A kernel together with the function that is its body, so that one description of a step serves
/// a device and a plain loop.
template <class... A>
struct Op {
  using Body = void (*)(reprise::Block, A...);

  Op(std::string_view name, Body body_) : kernel(name, body_), body(body_) {}

  reprise::Kernel<void(A...)> kernel;
  Body body;
};

}  // namespace examples
