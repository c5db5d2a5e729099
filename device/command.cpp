// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/command.hpp>

#include <ostream>

namespace reprise {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

bool fits(const Dim3& asked, const Dim3& most) noexcept {
  return asked.x <= most.x && asked.y <= most.y && asked.z <= most.z;
}

Result<void> validate_launch(const command::Launch& launch, const Limits& limits) noexcept {
  if (!launch.kernel) return Error{Errc::empty_handle, 0, "the kernel is empty"};
  if (!fits(launch.grid.blocks, limits.max_blocks)) {
    return Error{Errc::invalid_argument, 0, "more blocks than the device takes in one dimension"};
  }
  if (launch.grid.threads.count() == 0 || !fits(launch.grid.threads, limits.max_threads) ||
      launch.grid.threads.count() > limits.max_threads_per_block) {
    return Error{Errc::invalid_argument, 0, "threads per block are 0 or more than the limit"};
  }
  if (launch.grid.shared_bytes > limits.max_shared_bytes) {
    return Error{Errc::invalid_argument, 0, "more shared memory than a block may have"};
  }
  return {};
}

Result<void> validate_fill(const command::Fill& fill) noexcept {
  const auto width = fill.pattern_bytes;
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return Error{Errc::invalid_argument, 0, "a fill pattern has 1, 2, 4 or 8 bytes"};
  }
  if (fill.bytes % width != 0) {
    return Error{Errc::misaligned, 0, "the size is no multiple of the fill pattern"};
  }
  return {};
}

}  // namespace

const char* verb_of(const Command& command) noexcept {
  static constexpr const char* verbs[] = {"marker", "launch", "copy",      "fill",
                                          "write",  "read",   "host_call", "replay"};
  static_assert(std::size(verbs) == std::variant_size_v<Command>);
  return verbs[command.index()];
}

std::string_view name_of(const Command& command) noexcept {
  const auto* launch = std::get_if<command::Launch>(&command);
  return launch && launch->kernel ? std::string_view{launch->kernel->name} : std::string_view{};
}

std::ostream& put_repeat(std::ostream& out, GraphRepeat repeat, std::uint32_t at_most) {
  if (repeat == GraphRepeat::if_true) out << " if true";
  if (repeat != GraphRepeat::while_true) return out;
  out << " while true";
  if (at_most != no_repeat_limit) out << ", at most " << at_most << " times";
  return out;
}

std::ostream& operator<<(std::ostream& out, const Command& command) {
  out << verb_of(command);
  std::visit(Overloaded{
                 [&](const command::Launch& c) {
                   out << " '" << name_of(command) << "' " << (c.count != 0 ? "up to " : "")
                       << c.grid.blocks.x << 'x' << c.grid.blocks.y << 'x' << c.grid.blocks.z
                       << " blocks of " << c.grid.threads.x << 'x' << c.grid.threads.y << 'x'
                       << c.grid.threads.z;
                 },
                 [&](const command::Copy& c) { out << ' ' << c.bytes << " bytes"; },
                 [&](const command::Fill& c) {
                   out << ' ' << c.bytes << " bytes with 0x" << std::hex << c.pattern << std::dec;
                 },
                 [&](const command::Write& c) { out << ' ' << c.bytes << " bytes"; },
                 [&](const command::Read& c) { out << ' ' << c.bytes << " bytes"; },
                 [&](const command::RunGraph& c) { put_repeat(out, c.repeat, c.at_most); },
                 [](const auto&) {},
             },
             command);
  return out;
}

Result<void> validate(const Command& command, const Limits& limits) noexcept {
  if (const auto* launch = std::get_if<command::Launch>(&command)) {
    return validate_launch(*launch, limits);
  }
  if (const auto* fill = std::get_if<command::Fill>(&command)) return validate_fill(*fill);
  return {};
}

}  // namespace reprise
