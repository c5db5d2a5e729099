// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/access.hpp>
#include <reprise/memory/error.hpp>
#include <reprise/device/kernel.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// The oracle: what a device that did one thing after the other, in the order of the calls, would
/// have in its memory and answer. Byte by byte and without any cleverness.
///
/// What a real device may answer before it knows of a failure is wider than that; `is_settled()`
/// says when it is not. Nothing is ever wider about what a read returns.
namespace reprise::test::model {

// ---- kernels -----------------------------------------------------------------------------------

/// The kernels that sequences launch. Both sides run the same bodies.
enum class Body : std::uint8_t {
  add_one,
  mix,
  bump,
  poke,
  fail,
  fail_if,
  shake,
  seed,
  stab,
  count
};
inline constexpr std::size_t body_count = static_cast<std::size_t>(Body::count);

/// A buffer argument as a body sees it.
struct Cells {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
};
/// How a body uses its buffer arguments; none behind the last.
std::span<const Access> modes_of(Body body) noexcept;
/// Runs the part `part` of a body; throws std::runtime_error where the body fails.
void run_body(Body body, std::span<const Cells> cells, std::uint8_t at, std::uint8_t value,
              IndexRange part);

// ---- failures ----------------------------------------------------------------------------------

/// A set of codes; 0 is success.
using Codes = std::uint64_t;
constexpr Codes code(Errc errc) noexcept {
  return Codes{1} << static_cast<int>(errc);
}

/// What a verb may answer.
struct Expected {
  Codes codes = 0;
  bool may_succeed = true;
};

// ---- what there is -----------------------------------------------------------------------------

struct Claim {
  enum class Kind : std::uint8_t { unwritten, not_started, ran };
  Kind kind = Kind::unwritten;
  std::uint64_t owner = 0;
  Codes codes = 0;
};

struct Allocation {
  std::vector<std::uint8_t> value;
  std::vector<std::uint8_t> known;         ///< Whether `value` is what the device has.
  std::vector<std::vector<Claim>> claims;  ///< Of each byte; the last is on top.
  Codes failed = 0;                        ///< It was never found.
  std::uint64_t window = 0;                ///< In which it was made.
};
using AllocationPtr = std::shared_ptr<Allocation>;

/// A handle.
struct Span {
  AllocationPtr memory;
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const noexcept { return end - begin; }
};

struct Argument {
  Span span;
  Access access = Access::none;
};

struct Command {
  enum class Verb : std::uint8_t { copy, fill, write, launch, host_call };
  Verb verb = Verb::fill;
  Body body = Body::add_one;
  std::vector<Argument> arguments = {};
  std::vector<std::uint8_t> data = {};
  std::uint8_t at = 0;
  std::uint8_t value = 0;  ///< host_call: not 0 throws.
  bool bad_grid = false;
  bool no_grid = false;
};

struct Window {
  std::uint64_t id = 0;
  std::uint64_t owner = 0;  ///< The stream that opened it.
  bool closed = false;
  int unjoined = 0;
  bool recording = false;
  std::vector<Command> nodes;
  Codes doom = 0;
  enum class WarmUp : std::uint8_t { good, unknown, failed } warm_up = WarmUp::good;
};

struct Stream {
  std::shared_ptr<Window> window;  ///< Of another stream, if it was forked in that.
  std::uint64_t id = next_id();
  bool forked = false;
  Codes newest = 0;  ///< What became of its newest command.

  /// The window that it prepares or records in.
  Window* open() const noexcept { return window && !window->closed ? window.get() : nullptr; }
  bool is_recording() const noexcept { return open() && window->recording; }
  bool is_forked() const noexcept { return forked && open(); }

private:
  static std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Graph {
  std::uint64_t id = 0;
  std::vector<Command> nodes;
  std::vector<Span> inputs;
  std::vector<AllocationPtr> memory;
};
using GraphPtr = std::shared_ptr<Graph>;

// ---- the model ---------------------------------------------------------------------------------

class ReferenceModel {
public:
  /// Models that leave memory to each other have different numbers.
  explicit ReferenceModel(std::uint32_t number = 0) noexcept
      : next_id_((std::uint64_t{number} << 32) + 1) {}

  /// No failure of a running command can be unknown to the device.
  bool is_settled() const noexcept { return settled_; }
  /// Everything submitted has finished.
  bool is_quiet() const noexcept { return quiet_; }
  void synchronized() noexcept { settled_ = quiet_ = true; }
  std::uint64_t host_calls() const noexcept { return host_calls_; }
  /// Memory that another model knew of until now; no graph or window names it.
  void adopt(const AllocationPtr& memory) {
    allocations_.push_back(memory);
    settled_ = quiet_ = false;
  }
  /// Bytes of all allocations that handles, windows or graphs keep.
  std::uint64_t in_use() const;
  /// Those of them that graphs keep.
  std::uint64_t guarded() const;

  AllocationPtr allocate(Stream& stream, std::size_t bytes, Codes failed = 0);
  /// What the completion for acceptance answers.
  Expected submit(Stream& stream, const Command& command);
  Expected read(Stream& stream, const Span& span);
  /// What a reader of the bytes is told; 0 if they are clean.
  Codes codes_of(const Span& span) const;
  void restore(const Span& span);

  Expected prepare(Stream& stream);
  /// `started` is what the device did, where it may do either.
  Expected start(const Stream& stream) const;
  void started(Stream& stream, bool succeeded);
  Expected stop(const Stream& stream) const;
  /// The graph, or null.
  GraphPtr stopped(Stream& stream);
  Expected abort(Stream& stream);
  void doom(Stream& stream, Codes codes) {
    if (stream.window->doom == 0) stream.window->doom = codes;
  }
  void fork(const Stream& from, Stream& made);
  void join(Stream& stream, Stream& other);
  /// The last client of `stream` goes.
  void dropped(Stream& stream);
  void abandon(Stream& stream, Errc errc);

  struct Replay {
    Expected accepted;
    Expected finished;
    Codes causes = 0;  ///< Of a skip.
  };
  Replay replay(const Graph& graph);

private:
  void close(Stream& stream);
  Expected record(Stream& stream, const Command& command);
  Expected refuse(Stream& stream, const Command& command, Codes codes);
  Expected skip(Stream& stream, const Command& command, Codes codes);
  void seal(Graph& graph);
  bool run(const Command& command);
  void touch() noexcept { quiet_ = false; }

  std::vector<std::weak_ptr<Allocation>> allocations_;
  std::vector<std::weak_ptr<Graph>> graphs_;
  std::uint64_t next_id_;
  std::uint64_t host_calls_ = 0;
  bool settled_ = true;
  bool quiet_ = true;
};

}  // namespace reprise::test::model
