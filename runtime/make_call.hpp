// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/runtime/core.hpp>
#include <reprise/runtime/operation.hpp>

#include <memory>
#include <utility>

namespace reprise::detail {

/// An operation of the device itself that calls `function(Actor&, Operation&)` when its turn comes.
template <class F>
Operation* make_call(DeviceCore& core, const char* verb, F function) {
  return core.make<CallOperation<F>>(0, verb, std::move(function));
}

/// The same at its place in a logical stream.
template <class F>
Operation* make_call(const std::shared_ptr<LogicalStream>& logical, const char* verb, F function) {
  Operation* const operation = make_call(*logical->core, verb, std::move(function));
  operation->logical = logical;
  return operation;
}

}  // namespace reprise::detail
