// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/frontier.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/memory/small_vector.hpp>
#include <reprise/device/work.hpp>
#include <reprise/capture/device_captures.hpp>
#include <reprise/runtime/channel.hpp>
#include <reprise/runtime/completion.hpp>
#include <reprise/runtime/options.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <variant>

namespace reprise {
class Recorder;
struct RecordedNode;
}  // namespace reprise

namespace reprise::detail {

class Actor;
class DeviceCore;
class Operation;
class ReplayOrder;
struct EventState;
struct GraphState;
struct NodePlace;
struct Window;

/// Counts for others to read what one thread alone counts.
inline void add_one(std::atomic<std::uint64_t>& counter) noexcept {
  // Relaxed: a number, no order; no read-modify-write, as nobody else writes.
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// A logical stream: an order of commands. Clients, their copies and queued commands share it.
///
/// Lifetime  When the last reference goes, the control lane brings it to the device thread, which
///           closes a window it may still have and frees it.
/// Threads   The counters and `captures` belong to everybody, `device` to the device thread.
class LogicalStream : public ControlNode {
public:
  static std::shared_ptr<LogicalStream> make(std::shared_ptr<DeviceCore> core, StreamId id,
                                             Priority priority);
  ~LogicalStream();

  /// Takes one credit; false when the stream has as much unaccepted work as it may.
  bool take_credit(std::uint64_t limit) noexcept {
    // Relaxed: a bound on memory, not an order. The partner is give_credit(), whose line is asked
    // for only when what was seen of it is not enough.
    const std::uint64_t issued = issued_.fetch_add(1, std::memory_order_relaxed);
    if (issued - seen_.load(std::memory_order_relaxed) < limit) return true;
    const std::uint64_t accepted = accepted_.load(std::memory_order_relaxed);
    seen_.store(accepted, std::memory_order_relaxed);
    return issued - accepted < limit;
  }
  /// For a submission that got no ticket.
  void return_credit() noexcept { issued_.fetch_sub(1, std::memory_order_relaxed); }
  /// The device thread, when it has accepted a command of this stream.
  void give_credit() noexcept { add_one(accepted_); }

  const std::shared_ptr<DeviceCore> core;
  const StreamId id;
  const Priority priority;
  /// A window was asked for at some time. Relaxed: only who had the client since then has to know.
  std::atomic<bool> captures{false};

  struct Device {
    bool adopted = false;            ///< It has a home.
    StreamIndex home = 0;            ///< Backend stream of commands that depend on nothing.
    StreamPoint last;                ///< Where its newest command went.
    Operation* newest = nullptr;     ///< That command, until it is retired.
    FailurePtr failure;              ///< What became of it, if it failed, was skipped or refused.
    std::unique_ptr<Window> window;  ///< While a capture is prepared or recording.
    Window* forked_in = nullptr;     ///< The window of another stream, in which this one records.
  };
  alignas(64) Device device;

private:
  LogicalStream(std::shared_ptr<DeviceCore> core, StreamId id, Priority priority) noexcept;

  alignas(64) std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> seen_{0};  // of accepted_, some time ago
  alignas(64) std::atomic<std::uint64_t> accepted_{0};
};

/// What the ring carries: the operation itself lives in a pooled block.
struct Submitted {
  Operation* operation;
  static const ItemOps ops;
};

/// What the ring carries for a replay whose caller is blocked, and keeps the graph: the device
/// thread makes the operation, so that no lines of memory but the slot's go between the threads.
struct ReplayRequest {
  GraphState* graph;
  Reply* accepted;  ///< May be null.
  Reply* finished;  ///< May be null.
  static const ItemOps ops;
};

/// One submitted command, from the caller's verb until it is retired: the record in the ring, in
/// the journal and in the backend's hands.
///
/// Lifetime  Made by the submitter in a pooled block, or by the device thread for a caller who is
///           blocked; owned by the device from its ticket on, freed by the device thread when the
///           work is finished and judged.
class Operation : public Work, public ControlNode {
public:
  explicit Operation(const char* verb_) noexcept : verb(verb_) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Its turn has come, in ticket order, on the device thread. Every path ends in one of the
  /// actor's outcomes: enqueue, refuse, skip, record or done.
  virtual void accept(Actor& actor) = 0;
  /// The kernel or graph, for failures.
  virtual std::string_view name() const noexcept { return {}; }

  /// Whether success also lifts the `not_started` claims of this owner from what it may write:
  /// replays of a graph. 0: no.
  virtual std::uint64_t owner() const noexcept { return 0; }
  /// The same for one entry of `touches`, where not all are alike.
  virtual std::uint64_t owner_of(const Touch& /*touch*/) const noexcept { return owner(); }
  /// Adds to `node` what a recording must keep besides command and byte sets, or replaces what
  /// belongs to the operation by what belongs to `recorder`. May throw std::bad_alloc.
  virtual void describe(RecordedNode& /*node*/, Recorder& /*recorder*/) const {}
  /// What it answers when `claim` keeps it from running.
  virtual FailurePtr skip_failure(const Claim& claim) const noexcept {
    return make_failure(Errc::skipped, verb, name(), "an input carries a failure",
                        report(claim, {}, where));
  }
  /// A claim that keeps it from running although it reads no byte that carries one: a part of the
  /// same command has failed. Null: none. Asked when a failure is judged.
  virtual const Claim* doomed_by() const noexcept { return nullptr; }
  /// A replay that failed: claims and clears bytes as the outcome of each node in Work::nodes says.
  virtual void claim_nodes() {}
  /// Its ticket is served, which may be before its turn: decides what is left to decide of its byte
  /// sets. Called if `settles`.
  virtual void settle(Actor& /*actor*/) noexcept {}
  /// The backend took it.
  virtual void was_accepted(Actor& /*actor*/) noexcept {}
  /// It was refused, skipped, or failed while running.
  virtual void failed_with(const FailurePtr& /*failure*/) noexcept {}
  /// What it means that it failed while running, which holds its stream.
  enum class Verdict : std::uint8_t {
    failed,  ///< That it has failed; Work::failure says why.
    waits,   ///< That it came too early, for something outside of its device, which will bring it
             ///< to Actor::on_failed() again.
    opens,   ///< That it is to be run again, and will succeed.
  };
  virtual Verdict judge() noexcept { return Verdict::failed; }
  /// The device has ended without coming to it, and its completions are answered.
  virtual void left_behind(Actor& /*actor*/) noexcept {}
  /// Called on the device thread when the operation leaves, whatever became of it.
  virtual void retired(Actor& /*actor*/) noexcept {}

  /// The byte sets. Merged ones for a replay.
  std::span<const Touch> touches;
  /// Those of them whose references are the operation's own. They own the memory until the backend
  /// has the command; from then on its place in the order keeps the bytes from others.
  std::span<Touch> own_touches;

  const char* verb;
  SourceLocation where;
  std::shared_ptr<LogicalStream> logical;  ///< Null for commands of the device itself.
  Completion accepted;                     ///< Told when the backend took it, or with the refusal.
  Completion finished;                ///< Told when the device has done it, or with the failure.
  std::atomic<bool> answered{false};  ///< Who sets it answers `finished`.
  Reply* taken = nullptr;  ///< Of a plain posting form; told only if the submission was late.

  /// Answers `finished` unless somebody else has: the worker that ran it, the device thread, or a
  /// shutdown that gives up on it.
  void finish(const FailurePtr& failure) noexcept {
    // Pairs with itself: the loser may not touch the completion, whose reply may be gone.
    if (finished && !answered.exchange(true, std::memory_order_acq_rel)) finished(failure);
  }

  Late<Submitted> late;
  std::uint64_t ticket = 0;
  void* block = nullptr;  ///< The pooled block it lives in.
  std::uint32_t block_bytes = 0;
  bool made_here = false;  ///< By the device thread, in a block of its own.
  bool settles = false;    ///< settle() is to be called.

  // The journal's part; see journal.hpp.
  enum class Effect : std::uint8_t { none, wrote, claimed, lifted };
  struct Undo {
    Hold* hold;  ///< Of a touch of the operation.
    ByteRange range;
    TaintSpans spans;
  };
  Effect effect = Effect::none;
  ReplayOrder* replay = nullptr;  ///< Of a replay: takes the place of its byte sets in order.
  bool enqueued = false;
  bool let_go = false;  ///< `own_touches` own nothing any more.
  bool passed = false;  ///< Its stream is past it; it stays for the marks of older ones.
  Operation* older = nullptr;
  Operation* newer = nullptr;
  Operation* behind = nullptr;         ///< Next on the same backend stream.
  std::shared_ptr<EventState> events;  ///< Recorded right behind it.
  ClaimPtr claim;                      ///< claimed: what its may-write set carries.
  SmallVector<Undo, 1> undo;
  Frontier waits_for;
  SmallVector<StreamPoint, 2> wait_points;  ///< The memory of Work::waits.
};

/// Waits, questions and allocations are no commands that an event stands behind.
inline bool is_transparent(const Operation& operation) noexcept {
  return operation.touches.empty() && std::holds_alternative<command::Marker>(operation.command);
}

/// An operation that is nothing but a call on the device thread at its place in the order.
template <class F>
class CallOperation final : public Operation {
public:
  CallOperation(const char* verb_, F call) noexcept : Operation(verb_), call_(std::move(call)) {}
  void accept(Actor& actor) override { call_(actor, *this); }

private:
  F call_;
};

}  // namespace reprise::detail
