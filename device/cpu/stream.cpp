// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/stream.hpp>

#include <reprise/device/cpu/program.hpp>

namespace reprise::detail {

bool RunningCommand::is_brief() {
  std::lock_guard lock(mutex_);
  std::uintptr_t seen = word_.load(std::memory_order_seq_cst);
  if (seen == 0 || !word_.compare_exchange_strong(seen, seen | read, std::memory_order_acq_rel)) {
    return false;
  }
  const auto& command = reinterpret_cast<const Work*>(seen & ~read)->command;
  return !std::holds_alternative<command::Launch>(command) &&
         !std::holds_alternative<command::RunGraph>(command) &&
         !std::holds_alternative<command::HostCall>(command);
}

std::string RunningCommand::name() {
  std::lock_guard lock(mutex_);
  std::uintptr_t seen = word_.load(std::memory_order_acquire);
  if (seen == 0 || !word_.compare_exchange_strong(seen, seen | read, std::memory_order_acq_rel)) {
    return {};
  }
  const auto& command = reinterpret_cast<const Work*>(seen & ~read)->command;
  if (const auto* graph = std::get_if<command::RunGraph>(&command)) {
    const auto& program = static_cast<const CpuProgram&>(*graph->program);
    return std::string(program.name_at(at.load(std::memory_order_relaxed)));
  }
  const std::string_view name = name_of(command);
  return std::string(name.empty() ? verb_of(command) : name);
}

}  // namespace reprise::detail
