// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/seeded_host.hpp>
#include <reprise/runtime/runtime.hpp>

#include "support/model_ops.hpp"
#include "support/model_run.hpp"
#include "support/reference_model.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test::model {

/// A buffer and what a model knows of it.
struct Handle {
  Array<std::uint8_t> real;
  Span span;
};

/// One buffer that somebody has left for others to take.
class Exchange {
public:
  /// Leaves `given` and answers what lay there.
  std::optional<Handle> swap(std::optional<Handle> given) {
    const std::lock_guard lock(mutex_);
    return std::exchange(lies_, std::move(given));
  }

private:
  std::mutex mutex_;  // Guards what follows.
  std::optional<Handle> lies_;
};

DeviceOptions options_of(const Setting& setting);

/// A device and the model beside it, driven by the operations of one sequence.
class World {
public:
  World(const Sequence& sequence, HostKind host);
  /// On a device that others use too. Buffers go by `exchange`.
  World(const Sequence& sequence, const Device& device, Exchange& exchange, std::uint32_t number);

  Outcome run();

private:
  using Bytes = Array<std::uint8_t>;
  struct Stream {
    Client real;
    StreamPtr model;
  };
  struct Replayable {
    reprise::Graph real;
    GraphPtr model;
  };
  struct Marked {
    Event real;
    Codes codes = 0;
    bool in_window = false;
    std::uint64_t owner = 0;  ///< Of the window.
  };
  struct PendingRead {
    Future<std::vector<std::uint8_t>> future;
    Expected expected;
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> known;
    std::size_t step;
  };
  struct PendingVoid {
    Future<void> future;
    Expected expected;
    Codes causes;
    std::size_t step;
  };
  enum class Form { plain, attempt, async };

  /// Does one operation and answers how many more it has consumed.
  std::size_t step(std::size_t i);
  void memory(const Op& op);
  void work(const Op& op);
  void answer(const Op& op);
  std::size_t window(const Op& op, std::size_t i);
  void graph(const Op& op);
  void client(const Op& op);
  void device(const Op& op);

  void allocate(const Op& op);
  void carve(const Op& op);
  void write(const Op& op);
  void fill(const Op& op);
  void copy(const Op& op);
  void launch(const Op& op);
  void host_call(const Op& op);
  void read(const Op& op);
  void async_read(const Op& op);
  void check(const Op& op);
  std::size_t capture(const Op& op, std::size_t i);
  void seal(const Op& op, const StreamPtr& stream, const reprise::Graph& graph);
  void replaced(const Stream& old);
  void open();
  void exchange(std::size_t i);
  void quiet();
  void check_memory();
  void await_all();
  void drop_everything();
  void finish();

  /// Calls `verb` and compares what it throws. True if it succeeded.
  template <class F>
  bool attempt(const Expected& expected, F&& verb, Codes causes = 0) {
    try {
      verb();
      judge(expected, nullptr, causes);
      return true;
    } catch (const Failure& failure) {
      judge(expected, &failure.record(), causes);
      return false;
    }
  }
  void judge(const Expected& expected, const FailureRecord* failure, Codes causes);
  /// Posts `command` in the form that `op` asks for.
  template <class Plain, class Try, class Async>
  void post(const Op& op, const Command& command, Plain&& plain, Try&& attempt, Async&& async);
  template <class... X>
  void launch_as(const Op& op, const Command& command, const Kernel<void(X...)>& kernel,
                 const Grid& grid, const auto&... arguments);
  void compare(const std::vector<std::uint8_t>& seen, const std::vector<std::uint8_t>& bytes,
               const std::vector<std::uint8_t>& known);
  void fail(const std::string& what);

  Stream& stream_of(const Op& op);
  Handle* slot(std::uint8_t number);
  /// The part of a slot that `at` and `n` choose; all of it if `n` is 0.
  Handle part(const Handle& handle, std::uint8_t at, std::uint8_t n) const;
  static Form form_of(const Op& op);

  const Sequence& sequence_;
  HostKind kind_;
  std::optional<SeededHost> host_;
  std::atomic<std::uint64_t> host_calls_{0};
  std::deque<std::vector<std::uint8_t>> borrowed_;
  std::optional<Runtime> runtime_;
  Device device_;
  Exchange* exchange_ = nullptr;  // Null: nobody else uses the device.
  ReferenceModel model_;
  std::array<Stream, 4> clients_;
  std::vector<Stream> scopes_;  // Recording clients of captures that are going on, innermost last.
  std::array<std::optional<Handle>, 8> handles_;
  std::array<Replayable, 3> graphs_;
  std::array<std::optional<Marked>, 2> events_;
  std::vector<PendingRead> reads_;
  std::vector<PendingVoid> voids_;
  Bytes anchor_;
  std::size_t at_ = 0;
  std::uint64_t operations_ = 0;
  std::string problem_;
};

}  // namespace reprise::test::model
