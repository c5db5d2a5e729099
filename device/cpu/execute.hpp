// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/device/command.hpp>

#include <exception>
#include <string_view>

namespace reprise::detail {

void execute(const command::Copy& copy) noexcept;
void execute(const command::Fill& fill) noexcept;
void execute(const command::Write& write) noexcept;
void execute(const command::Read& read) noexcept;

/// Thrown by a node that stands for a whole graph: that graph's first failure.
struct ChildFailed {
  FailurePtr failure;
};

/// What user code threw, as a failure of `verb` in `node`. Never throws: without memory for the
/// text it keeps the exception, without memory for the record it answers the shared one.
FailurePtr describe(std::string_view verb, std::string_view node,
                    const std::exception_ptr& thrown) noexcept;

}  // namespace reprise::detail
