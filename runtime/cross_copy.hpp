// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/runtime/operation.hpp>

#include <cstdint>
#include <memory>

namespace reprise::detail {

/// Copies from another device of the same runtime: starts the read of `from` there, by way of host
/// memory, and answers the operation that writes `to` when its turn comes and the read is done.
/// Both touches are of the same size. Throws Failure.
Operation* make_cross_copy(const std::shared_ptr<LogicalStream>& stream, Touch to, Touch from);

}  // namespace reprise::detail
