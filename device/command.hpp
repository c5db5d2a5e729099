// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/device/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <variant>

namespace reprise {

class GraphProgram;

/// How often a graph runs that is a node of another one.
enum class GraphRepeat : std::uint8_t {
  once,
  if_true,     ///< Once if the condition is not 0.
  while_true,  ///< As long as the condition is not 0, up to a number of times.
};
/// No number of times is too many.
inline constexpr std::uint32_t no_repeat_limit = ~std::uint32_t{0};

/// "", " if true", " while true, at most 3 times".
std::ostream& put_repeat(std::ostream& out, GraphRepeat repeat, std::uint32_t at_most);

/// The closed set of commands a backend executes. All are resolved: addresses instead of buffers,
/// definitions instead of names. Pointers refer to memory that stays as it is until the command
/// has finished, or, in a graph, for the graph's life.
namespace command {

/// Runs `kernel` over `grid`. `arguments` is an argument block with every address filled in.
struct Launch {
  const KernelDefinition* kernel = nullptr;
  GridSize grid;
  const std::byte* arguments = nullptr;
  /// Address of 4 aligned bytes, read when the launch starts: no more blocks run than they say, the
  /// first ones in x-fastest order. 0: all run.
  std::uint64_t count = 0;
};
/// Device memory to device memory of the same device; the ranges do not overlap.
struct Copy {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;
};
/// Repeats the low `pattern_bytes` (1, 2, 4 or 8) bytes of `pattern` over `bytes`, a multiple.
struct Fill {
  std::uint64_t to = 0;
  std::uint64_t bytes = 0;
  std::uint64_t pattern = 0;
  std::uint32_t pattern_bytes = 1;
};
/// Host memory to device memory.
struct Write {
  std::uint64_t to = 0;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
};
/// Device memory to host memory.
struct Read {
  std::byte* to = nullptr;
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;
};
/// A function of the user's, run in stream order off the device thread. It may throw.
struct HostCall {
  void (*call)(void* context) = nullptr;
  void* context = nullptr;
};
/// A lowered graph, as one item. As a node of a recording it is lowered anew with it, so that it
/// never meets itself.
struct RunGraph {
  GraphProgram* program = nullptr;
  /// Where each slot of the plan begins in this run. Null: where it did when it was recorded.
  const std::uint64_t* slots = nullptr;
  GraphRepeat repeat = GraphRepeat::once;
  std::uint64_t condition = 0;  ///< Address of 4 aligned bytes, read each time; unless once.
  std::uint32_t at_most = 1;    ///< Runs; while_true.
};
/// Nothing; a point in the stream.
struct Marker {};

}  // namespace command

using Command = std::variant<command::Marker, command::Launch, command::Copy, command::Fill,
                             command::Write, command::Read, command::HostCall, command::RunGraph>;

/// The verb of a command: "launch", "copy" …
const char* verb_of(const Command& command) noexcept;
/// The kernel's name of a launch, else empty.
std::string_view name_of(const Command& command) noexcept;
std::ostream& operator<<(std::ostream& out, const Command& command);

/// What a device can take.
struct Limits {
  Dim3 max_blocks{0x7fffffff, 0xffff, 0xffff};
  Dim3 max_threads{1024, 1024, 64};
  std::uint32_t max_threads_per_block = 1024;
  std::uint32_t max_shared_bytes = 0;
};

/// Checks what can be told without the device: the grid against the limits, a body for the kind of
/// device, sizes and alignment. Errc::invalid_argument, no_such_kernel, misaligned.
Result<void> validate(const Command& command, const Limits& limits) noexcept;

}  // namespace reprise
