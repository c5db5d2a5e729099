// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/op.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace examples {

/// Host memory with the allocating verbs of a reprise::Client, for steps that run without a device.
///
/// Lifetime  Spans stay valid while the memory lives.
class PlainMemory {
public:
  template <class T>
  std::span<T> zeros(std::size_t n) {
    blocks_.push_back(std::make_unique<std::byte[]>(n * sizeof(T)));
    return {reinterpret_cast<T*>(blocks_.back().get()), n};
  }
  template <class T>
  std::span<T> empty(std::size_t n) {
    return zeros<T>(n);
  }
  template <class T>
  std::span<T> create(std::span<const T> source) {
    const std::span<T> copy = zeros<T>(source.size());
    std::memcpy(copy.data(), source.data(), source.size_bytes());
    return copy;
  }

private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

/// Calls a body for the only block of a launch.
class PlainLaunch {
public:
  template <class... Parameters, class... Arguments>
  void operator()(const Op<Parameters...>& op, std::uint32_t items,
                  const Arguments&... arguments) const {
    op.body(reprise::Block{{0, 0, 0}, {1, 1, 1}, {items, 1, 1}}, as<Parameters>(arguments)...);
  }

private:
  // A span becomes the kernel's view of it, a scalar stays what it is.
  template <class Parameter, class Argument>
  static Parameter as(const Argument& argument) {
    if constexpr (reprise::BufferArgument<Parameter>) {
      return Parameter{argument.data(), argument.size()};
    } else {
      return argument;
    }
  }
};

}  // namespace examples
