// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/hold.hpp>
#include <reprise/runtime/operation.hpp>

#include <cstdint>
#include <memory>

namespace reprise::detail {

/// A command in a backend's hands that may have to wait for something outside of its device. When
/// it is run too early it fails, and thereby holds its stream; the actor then asks it what that
/// means.
///
/// Threads  The device thread's.
class Gate {
public:
  enum class Verdict : std::uint8_t {
    waits,   ///< The stream stays held; the gate brings itself to Actor::on_failed() again.
    opens,   ///< It is run again and succeeds.
    failed,  ///< It has failed; Work::failure says why.
  };
  virtual Verdict judge() noexcept = 0;

protected:
  ~Gate() = default;
};

/// Copies from another device of the same runtime: starts the read of `from` there, by way of host
/// memory, and answers the operation that writes `to` when its turn comes and the read is done.
/// Both touches are of the same size. Throws Failure.
Operation* make_cross_copy(const std::shared_ptr<LogicalStream>& stream, Touch to, Touch from);

}  // namespace reprise::detail
