// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/pool.hpp>
#include <reprise/device/backend.hpp>
#include <reprise/runtime/allocation_trace.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/journal.hpp>
#include <reprise/runtime/operation.hpp>
#include <reprise/runtime/replay_order.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace reprise {
enum class Health : std::uint8_t;
struct MemorySnapshot;
struct SlotSpec;
}  // namespace reprise

namespace reprise::detail {

class ChunkOperation;
struct EventState;
struct GraphState;
struct Transfer;
struct TransferSlot;

/// The device actor: owns everything a device is and does, and consumes its channel.
///
/// step() takes commands in ticket order. Each either does its business at once (an allocation, a
/// question) or becomes work: its inputs are checked for failures, the order against unfinished
/// work of other streams is derived from its byte sets, the backend takes it, and it stays in the
/// journal until its end has been seen. Nothing here blocks, throws or runs user code.
///
/// Threads  All members belong to the thread that calls step(): the device thread.
class Actor final : public Loop {
public:
  explicit Actor(DeviceCore& core);
  ~Actor();

  // Loop.
  bool step() noexcept override;
  Rest rest() noexcept override;
  void pause() noexcept override { core_.channel().pause(); }
  void overslept() noexcept override;
  bool expects_work() noexcept override;

  // The outcomes an Operation's accept() may choose.

  /// Checks, orders and hands to the backend the command in `operation.command`; or records it if
  /// its stream is in a window. The usual outcome.
  void run(Operation& operation);
  /// Like run() for a replay of the graph whose place is `order`.
  void replay(Operation& operation, ReplayOrder& order);
  /// Like run() for a command without byte sets that waits for `points` only.
  void run_after(Operation& operation, const Frontier& points);
  /// Nothing is left to do and all went well.
  void done(Operation& operation) noexcept;
  /// It does not run: its may-write bytes carry `failure` as not started, its completions answer.
  void refuse(Operation& operation, FailurePtr failure) noexcept;
  void refuse(Operation& operation, Errc code, std::string_view message) noexcept;
  /// Its completions answer `failure`; no byte is marked.
  void answer(Operation& operation, const FailurePtr& failure) noexcept;
  /// Lifts not_started claims, at the operation's place among the unfinished ones.
  void restore(Operation& operation);

  // Memory; see actor_memory.cpp.

  /// Finds memory for `holds`. False: there is none, and the operation has been answered.
  bool find_memory(Operation& operation, std::span<const HoldRef> holds);
  /// No one owns `hold` any more.
  void give_back(Hold& hold) noexcept;
  bool is_finished(StreamPoint point) const noexcept {
    return backend_.finished(point.stream) >= point.position;
  }
  bool is_answered(StreamPoint point) const noexcept;
  Health health(std::span<const Touch> touches);
  /// A question came by the control lane. True: it will be run once more, when everything that was
  /// posted there before it is served; this is not that time yet.
  bool defers(ControlNode& question) noexcept;
  /// Throws std::bad_alloc.
  MemoryReport memory_report();
  /// Throws std::bad_alloc.
  MemorySnapshot memory_snapshot();
  std::uint64_t trim() noexcept;

  // Streams and events.

  /// Everything that was enqueued and is not retired, on any stream. Throws std::bad_alloc.
  Frontier everything() const;
  void synchronize(Operation& operation);
  /// With timing, behind a marker of its own, whose `finished` is told when it is passed.
  void record_event(Operation& operation, std::shared_ptr<EventState> event);
  void wait_event(Operation& operation, const EventState& event);
  /// The operation's stream goes on behind `point`.
  void wait_for(Operation& operation, StreamPoint point);
  void close_stream(LogicalStream& logical) noexcept;

  // Captures and graphs; see actor_capture.cpp.

  void prepare_capture(Operation& operation, bool growth, std::string_view name);
  void start_capture(Operation& operation);
  void stop_capture(Operation& operation, std::shared_ptr<GraphState>& graph, bool marks);
  void abort_capture(Operation& operation);
  /// The recording function threw: like abort, but what was recorded is marked as never started.
  void abandon_capture(Operation& operation);
  /// `forked` is new, and records with the operation's stream if that is recording.
  void enroll(Operation& operation, LogicalStream& forked);
  /// In a window: `other`, which was forked in it, records no more. Else: the operation's stream
  /// waits for it.
  void join(Operation& operation, LogicalStream& other);
  /// What the next command recorded on the operation's stream is in a graph by hand.
  void place_next(Operation& operation, NodePlace& place);
  void name_slot(Operation& operation, SlotSpec&& slot);
  void lowered(Operation& operation, const FailurePtr& failure) noexcept;
  bool is_recording(const Operation& operation) const noexcept;
  void release_graph(GraphState& graph) noexcept;

  // Writes in chunks; see actor_transfer.cpp.

  /// The turn of the first chunk, which opens its transfer.
  void open_transfer(ChunkOperation& first);
  /// A later chunk is there.
  void take_chunk(Transfer& transfer, TransferSlot& slot) noexcept;
  /// Ends a transfer one of whose chunks failed.
  void settle_transfer(Transfer& transfer) noexcept;

  void on_failed(Operation& operation) noexcept;
  void on_doorbell() noexcept {
    armed_ = false;
    retire();
    ++unkicked_;  // A helper may have left work.
  }
  /// The device thread has ended without being done, and the backend starts nothing any more:
  /// whoever still waits is told. Called by the thread that closes the device.
  void answer_left_behind() noexcept;
  /// Whether the calling thread is inside step() or rest() of this device's actor.
  static bool is_stepping(const DeviceCore& core) noexcept;
  DeviceCore& core() noexcept { return core_; }
  Backend& backend() noexcept { return backend_; }

private:
  // Taking commands.
  bool serve_ring() noexcept;
  void take(const ChannelItem& item) noexcept;
  void take(Operation& operation, std::uint64_t ticket) noexcept;
  void take(const ReplayRequest& request, std::uint64_t ticket) noexcept;
  void place(Operation& operation, std::uint64_t ticket) noexcept;
  void accept(Operation& operation) noexcept;
  bool run_stage() noexcept;
  void stage(Operation& operation) noexcept;
  void leave_behind(const ChannelItem& item, const FailurePtr& failure) noexcept;
  // Running them.
  void find_waits(Operation& operation);
  StreamIndex place(Operation& operation) noexcept;
  void enqueue(Operation& operation);
  void note_uses(Operation& operation, StreamPoint point) noexcept;
  void note_written(Operation& operation) noexcept;
  void let_go(Operation& operation) noexcept;
  void skip(Operation& operation, const Claim& claim);
  void keep_mark(Operation& operation) noexcept;
  void adopt(LogicalStream& logical) noexcept;
  void note_outcome(Operation& operation, const FailurePtr& failure) noexcept;
  static const Hold* failed_memory(const Operation& operation) noexcept;
  static void claim_everything(std::span<const Touch> touches, const FailurePtr& failure) noexcept;
  // Their end.
  void look_at_lanes() noexcept;
  void leave_journal(Operation& operation) noexcept;
  bool retire(std::uint32_t at_most = ~std::uint32_t{0}) noexcept;
  void release(Operation& operation) noexcept;
  bool serve_control() noexcept;
  void answer_questions() noexcept;
  // Rest.
  void kick(StreamIndex except) noexcept;
  bool may_kick() const noexcept;
  bool idle_kick() noexcept;
  bool may_stop() noexcept;
  void arm(bool first) noexcept;
  // Memory.
  bool bind(const Operation& operation, Hold& hold, FailurePtr& failure);
  PageUpdate page_update(const Operation& operation) const noexcept;
  // Captures.
  Window* window_of(const Operation& operation) const noexcept;
  void decline(Operation& operation, const Error& error) noexcept;
  void record(Operation& operation, Window& window);
  void close_window(LogicalStream& logical, const FailurePtr& failure, bool claim) noexcept;
  bool is_forked(Operation& operation);
  void require_joined(Window& window);
  void drop_forked(LogicalStream& forked) noexcept;
  void guard(GraphState& graph);
  void lower(Operation& operation, const std::shared_ptr<GraphState>& graph);
  // Writes in chunks.
  bool must_stage(const Operation& operation) const noexcept {
    return in_flight_ >= core_.options().in_flight ||
           (transfers_ != nullptr && is_behind_transfer(operation));
  }
  bool is_behind_transfer(const Operation& operation) const noexcept;
  void run_chunk(Transfer& transfer, TransferSlot& slot) noexcept;
  void abandon(Transfer& transfer, TransferSlot& slot, Errc code,
               std::string_view message) noexcept;
  void mark_torn(Transfer& transfer) noexcept;
  void end_transfer(Transfer& transfer) noexcept;

  DeviceCore& core_;
  Backend& backend_;
  std::unique_ptr<AllocationTracer> tracer_;  ///< Null: nobody asked for a trace.
  Pool pool_;
  Journal journal_;
  RecentTouches recent_;

  /// One backend stream: how far it was enqueued, and what of it is not retired.
  struct Lane {
    StreamPosition enqueued = 0;
    StreamPosition finished = 0;  ///< As far as look_at_lanes() has seen.
    Operation* first = nullptr;
    Operation* last = nullptr;
    /// How far of each other stream its commands have waited for: later ones need not again.
    std::vector<StreamPosition> waited_for;
  };
  std::vector<Lane> lanes_;
  std::uint64_t busy_ = 0;  ///< Bit per lane with unretired work.
  std::uint32_t in_flight_ = 0;
  std::uint32_t kept_ = 0;  ///< Finished, and still in the journal for the sake of marks.
  StreamIndex next_home_ = 0;

  Transfer* transfers_ = nullptr;  ///< The open ones.
  /// Taken off the ring, waiting for room in the backend or a transfer's end, oldest first.
  Operation* stage_first_ = nullptr;
  Operation* stage_last_ = nullptr;

  std::uint32_t unkicked_ = 0;               ///< Enqueued since the last kick.
  std::uint32_t looks_ = 0;                  ///< Looks that found nothing since.
  StreamIndex helped_ = Backend::no_stream;  ///< A blocked caller was asked to run this one.
  StreamPoint help_until_;                   ///< What that caller waits for.
  bool caller_is_near_ = false;              ///< A blocked caller was answered since the last kick.
  bool answered_caller_ = false;             ///< One was answered, and may be back at once.
  const bool cooperative_;                   ///< Nobody else runs while this thread does.
  std::uint32_t steps_ = 0;
  bool armed_ = false;   ///< The backend will ring when the work in flight is done.
  bool parked_ = false;  ///< The channel's word says so.

  GraphState* graphs_ = nullptr;  ///< The live ones, for reports.
  std::unordered_map<const GraphState*, std::vector<Guard>> guards_;
  std::uint32_t lowering_ = 0;  ///< Recordings on the helper thread.

  ControlNode* questions_ = nullptr;  ///< Deferred, newest first.
  bool is_answering_ = false;
};

}  // namespace reprise::detail
