// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/report.hpp>
#include <reprise/device/kernel.hpp>
#include <reprise/capture/device_captures.hpp>
#include <reprise/runtime/buffer.hpp>
#include <reprise/runtime/event.hpp>
#include <reprise/runtime/future.hpp>
#include <reprise/runtime/graph.hpp>
#include <reprise/runtime/options.hpp>
#include <reprise/runtime/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise {

namespace detail {
struct ClientAccess;
struct ClientStream;
}  // namespace detail

/// What Client::check() says of some buffers.
enum class Health : std::uint8_t {
  clean,    ///< Every byte's last writer has succeeded.
  pending,  ///< No failure so far, but a writer has not finished.
  failed,   ///< Some byte carries a failure.
};

/// The grid of a launch whose size the device knows alone: of `max_grid`, as many blocks run as the
/// one element of `count` says when the launch's turn comes, the first ones in x-fastest order. 0:
/// none; more than there are: all. A body sees `max_grid` as the grid.
///
/// As there may be few, no output counts as written: marks on it stay, so that it must have been
/// written before to be read. `count` must have been written.
template <class Count = Array<std::uint32_t>>
struct IndirectGrid {
  IndirectGrid(const Grid& max_grid_, const Count& count_) : max_grid(max_grid_), count(count_) {}

  Grid max_grid;
  Count count;
};

/// The byte sets of work that the library cannot look into.
struct ByteSets {
  std::vector<Buffer> reads;
  std::vector<Buffer> may_write;
  std::vector<Buffer> must_write;  ///< Implies may_write.
};

/// How a window is opened.
struct CaptureOptions {
  /// Whether allocations in the window may map new memory. capture(fn) always allows it.
  bool growth = false;
  std::string_view name = {};  ///< Of the graph, in failures and reports.
};

/// What capture_or_run() did.
struct CaptureOrRun {
  Graph graph;        ///< Captured and replayed once; empty: the function ran instead.
  FailurePtr reason;  ///< Then: what kept it from being captured.

  explicit operator bool() const noexcept { return static_cast<bool>(graph); }
};

namespace detail {
inline LaunchGrid launch_grid(const Grid& grid) noexcept {
  return {grid};
}
inline LaunchGrid launch_grid(const IndirectGrid<>& grid) noexcept {
  return {grid.max_grid, &grid.count};
}
}  // namespace detail

/// A logical stream of one device: what is submitted through a client and its copies takes effect
/// in the order of the calls, and across clients wherever they touch the same bytes.
///
/// Plain verbs that post return at once; their failures live on the memory they would have
/// written, in the error sink and the counters, so that a later read tells. Verbs that block, and
/// all errors the calling thread can see, throw Failure. try_ forms answer false or nothing instead
/// of waiting for room.
///
/// async_ forms end in `tail`: nothing for a Future; a completion token, any of Asio's; or
/// CallOptions and a token. With a token they need <reprise/runtime/async.hpp>. Failures arrive
/// with the completion, those that the calling thread can see included, but for an empty client.
/// They complete when the device has accepted the command, unless said otherwise.
///
/// Lifetime  A cheap handle. It does not keep the device open: after its end verbs answer closed.
/// Threads   Any thread may use a client and its copies; calls made at once are ordered by their
///           tickets. Identity is in the handle, so a coroutine stays on its stream wherever it
///           resumes.
/// Errors    empty_handle, wrong_device (a buffer, kernel or graph of another device), closed and
///           device_lost are possible everywhere and not repeated below. Blocking verbs throw
///           would_deadlock on the library's own threads.
class Client {
public:
  /// Refers to nothing; verbs answer Errc::empty_handle.
  Client() noexcept = default;

  explicit operator bool() const noexcept { return shared_ != nullptr; }
  /// The logical stream's number.
  StreamId stream() const noexcept;
  /// A client on a new stream of the same device. That of a recording client records in the same
  /// window until it is joined; it can neither open nor end windows.
  Client fork(Priority priority = Priority::normal) const;
  /// What is submitted on this stream from here on starts after everything submitted on `other` so
  /// far. In a window: `other` was forked in it, and what it is given from here on executes. A
  /// stream that is not joined before its window ends, or is dropped unjoined, dooms it with
  /// capture_order; joining any other one dooms it with capture_refused.
  void join(const Client& other) const;
  bool try_join(const Client& other) const;
  template <class... Tail>
  auto async_join(const Client& other, Tail&&... tail) const;
  /// A client on the stream of `other`, which is of the same device.
  Client on(const Client& other) const;
  /// Whether this stream has a capture prepared or recording. One atomic read; never waits.
  bool is_capturing() const noexcept;

  // ---- memory --------------------------------------------------------------------------------
  // Handles are there at once; the memory is found in ticket order. A request that fails becomes
  // the failure of the buffer: out_of_memory, over_limit, never_fits, growth_forbidden.

  /// `count` elements that nothing wrote: reading them before that fails with Errc::unwritten.
  template <class T>
  Array<T> empty(std::size_t count) const {
    return detail::BufferAccess::array<T>(empty_bytes(detail::byte_count<T>("empty", count)));
  }
  /// `count` elements of zero bytes.
  template <class T>
  Array<T> zeros(std::size_t count) const {
    Buffer made;
    detail::post(detail::make_zeros(*this, detail::byte_count<T>("zeros", count), made));
    return detail::BufferAccess::array<T>(std::move(made));
  }
  /// A copy of `values`, whose bytes are taken before this returns.
  template <class T>
  Array<T> create(std::span<const std::type_identity_t<T>> values) const {
    Array<T> array = empty<T>(values.size());
    write(array, values);
    return array;
  }
  template <class T>
  Array<T> create(std::initializer_list<T> values) const {
    return create<T>(std::span<const T>(values.begin(), values.size()));
  }
  /// Several arrays in one allocation, each aligned as an allocation of its own.
  template <class T>
  std::vector<Array<T>> create_many(std::span<const std::size_t> counts) const {
    const auto bytes = detail::byte_counts<T>("create_many", counts);
    std::vector<Buffer> parts;
    detail::post(detail::make_carved(*this, bytes, parts));
    return detail::typed_parts<T>(std::move(parts));
  }
  Buffer empty_bytes(std::uint64_t bytes) const {
    Buffer made;
    detail::post(detail::make_empty(*this, bytes, made));
    return made;
  }
  /// The same; nothing if they would have had to wait for room.
  template <class T>
  std::optional<Array<T>> try_empty(std::size_t count) const {
    Buffer made;
    const auto bytes = detail::byte_count<T>("try_empty", count);
    if (!detail::try_post(detail::make_empty(*this, bytes, made))) return {};
    return detail::BufferAccess::array<T>(std::move(made));
  }
  template <class T>
  std::optional<Array<T>> try_zeros(std::size_t count) const {
    Buffer made;
    const auto bytes = detail::byte_count<T>("try_zeros", count);
    if (!detail::try_post(detail::make_zeros(*this, bytes, made))) return {};
    return detail::BufferAccess::array<T>(std::move(made));
  }
  template <class T>
  std::optional<Array<T>> try_create(std::span<const std::type_identity_t<T>> values) const {
    Buffer made;
    const auto bytes = detail::keep_bytes(std::as_bytes(values));
    if (!detail::try_post(detail::make_create(*this, bytes, made))) return {};
    return detail::BufferAccess::array<T>(std::move(made));
  }
  template <class T>
  std::optional<std::vector<Array<T>>> try_create_many(std::span<const std::size_t> counts) const {
    std::vector<Buffer> parts;
    const auto bytes = detail::byte_counts<T>("try_create_many", counts);
    if (!detail::try_post(detail::make_carved(*this, bytes, parts))) return {};
    return detail::typed_parts<T>(std::move(parts));
  }
  /// The same; complete when the memory was found, or with the reason why it was not. The bytes of
  /// async_create are taken before it returns.
  template <class T, class... Tail>
  auto async_empty(std::size_t count, Tail&&... tail) const;
  template <class T, class... Tail>
  auto async_zeros(std::size_t count, Tail&&... tail) const;
  template <class T, class... Tail>
  auto async_create(std::span<const std::type_identity_t<T>> values, Tail&&... tail) const;
  template <class T, class... Tail>
  auto async_create_many(std::span<const std::size_t> counts, Tail&&... tail) const;

  /// Memory of the caller's as a buffer of a device that works on host memory. It counts as
  /// written. `release` is called with `data`, once, on the courier thread, when the last buffer,
  /// command and graph that use it are gone; until then the memory stays valid. Before anybody else
  /// touches it, wait for the work on it.
  ///
  /// Verbs order work by buffers, so the same memory should not be imported twice. `as<T>()` takes
  /// the alignment of `data` on trust.
  ///
  /// Errc::invalid_argument (no address), unsupported. If this throws, `release` is not called.
  Buffer import_memory(void* data, std::uint64_t bytes, std::function<void(void*)> release) const;

  // ---- work ----------------------------------------------------------------------------------

  /// Runs `kernel` over `grid`. Buffers go to In, Out, InOut and Update parameters as arrays of the
  /// same element type, scalars by conversion; the compiler checks both. A grid without blocks
  /// does nothing.
  ///
  /// Errc::invalid_argument, no_such_kernel (no body for this device): on the outputs.
  template <class... A, class... X>
  void launch(const Kernel<void(A...)>& kernel, const Grid& grid, const X&... arguments) const {
    detail::LaunchArguments<A...> bound(arguments...);
    detail::post(detail::make_launch(*this, kernel.definition(), {grid}, bound.view()));
  }
  /// The same over as many blocks of a grid as the device says. Errc::size_mismatch: the count has
  /// not one element.
  template <class... A, class... X>
  void launch(const Kernel<void(A...)>& kernel, const IndirectGrid<>& grid,
              const X&... arguments) const {
    detail::LaunchArguments<A...> bound(arguments...);
    detail::post(
        detail::make_launch(*this, kernel.definition(), detail::launch_grid(grid), bound.view()));
  }
  /// The same; false if it would have had to wait for room.
  template <class... A, class... X>
  bool try_launch(const Kernel<void(A...)>& kernel, const Grid& grid, const X&... arguments) const {
    detail::LaunchArguments<A...> bound(arguments...);
    return detail::try_post(detail::make_launch(*this, kernel.definition(), {grid}, bound.view()));
  }
  template <class... A, class... X>
  bool try_launch(const Kernel<void(A...)>& kernel, const IndirectGrid<>& grid,
                  const X&... arguments) const {
    detail::LaunchArguments<A...> bound(arguments...);
    return detail::try_post(
        detail::make_launch(*this, kernel.definition(), detail::launch_grid(grid), bound.view()));
  }
  /// Completes when the device has accepted the launch; its execution may still fail. The tail
  /// stands behind the kernel's arguments.
  template <class... A, class... X>
  auto async_launch(const Kernel<void(A...)>& kernel, const Grid& grid, X&&... arguments) const;
  template <class... A, class... X>
  auto async_launch(const Kernel<void(A...)>& kernel, const IndirectGrid<>& grid,
                    X&&... arguments) const;

  /// Copies `from` to `to`, of the same size and not overlapping. Errc::size_mismatch,
  /// invalid_argument.
  ///
  /// `from` may be of another device of the runtime. It is read there, behind what was submitted
  /// before and uses it, by way of host memory as large; the copy takes effect at its place in this
  /// stream. What keeps the source from being read is what `to` carries then. Cannot be recorded:
  /// capture_refused, in a window of this stream.
  void copy(const Buffer& to, const Buffer& from) const {
    detail::post(detail::make_copy(*this, to, from));
  }
  bool try_copy(const Buffer& to, const Buffer& from) const {
    return detail::try_post(detail::make_copy(*this, to, from));
  }
  template <class... Tail>
  auto async_copy(const Buffer& to, const Buffer& from, Tail&&... tail) const;

  /// Sets every element to `value`.
  template <class T>
  void fill(const Array<T>& array, const std::type_identity_t<T>& value) const {
    detail::post(make_fill(array, value));
  }
  template <class T>
  bool try_fill(const Array<T>& array, const std::type_identity_t<T>& value) const {
    return detail::try_post(make_fill(array, value));
  }
  template <class T, class... Tail>
  auto async_fill(const Array<T>& array, const std::type_identity_t<T>& value,
                  Tail&&... tail) const;

  /// Writes `values`, as many as the array has, taking the bytes before it returns. What is larger
  /// than a quarter of the staging limit goes in chunks, and waits for the device to have copied
  /// all but the last of them; it is one write all the same, whole or, if it fails, not to be read.
  /// Errc::size_mismatch.
  template <class T>
  void write(const Array<T>& array, std::span<const std::type_identity_t<T>> values) const {
    detail::post_write(*this, array, std::as_bytes(values));
  }
  /// The same from memory that the device takes over, without a copy.
  void write(const Buffer& buffer, HostBytes bytes) const {
    detail::post(detail::make_write(*this, buffer, std::move(bytes)));
  }
  /// The same; false if it would have had to wait for room, and the memory is gone then, too.
  bool try_write(const Buffer& buffer, HostBytes bytes) const {
    return detail::try_post(detail::make_write(*this, buffer, std::move(bytes)));
  }
  /// The same, copying the bytes.
  template <class T>
  bool try_write(const Array<T>& array, std::span<const std::type_identity_t<T>> values) const {
    return detail::try_post(
        detail::make_write(*this, array, detail::keep_bytes(std::as_bytes(values))));
  }
  /// Borrows `values`: they stay valid and unchanged until the completion, which comes when the
  /// device has read them.
  template <class T, class... Tail>
  auto async_write(const Array<T>& array, std::span<const std::type_identity_t<T>> values,
                   Tail&&... tail) const;
  /// Takes `bytes` over.
  template <class... Tail>
  auto async_write(const Buffer& buffer, HostBytes bytes, Tail&&... tail) const;

  /// Calls `function` in stream order, on a library thread on which library verbs only post. What
  /// it throws fails it. `sets` say what it reads and writes.
  void host_call(const ByteSets& sets, std::function<void()> function) const {
    detail::post(detail::make_host_call(*this, sets, std::move(function)));
  }
  bool try_host_call(const ByteSets& sets, std::function<void()> function) const {
    return detail::try_post(detail::make_host_call(*this, sets, std::move(function)));
  }
  template <class... Tail>
  auto async_host_call(const ByteSets& sets, std::function<void()> function, Tail&&... tail) const;

  /// Replays `graph`, as graph.replay() does, at this place in the stream; in a window records it
  /// as one node. The recording then keeps the graph, and a failure in it is the node's. Returns
  /// when the device has accepted or recorded it.
  ///
  /// Errc::empty_graph, not_initialized; what graph.replay() answers
  void replay(const Graph& graph) const;
  template <class... Tail>
  auto async_replay(const Graph& graph, Tail&&... tail) const;

  // ---- answers -------------------------------------------------------------------------------

  /// The array's elements, when everything submitted before that writes them has finished. Fails
  /// with the cause if any byte's last writer failed (Errc of the root), or nothing wrote it
  /// (Errc::unwritten). Errc::capture_refused in a window.
  template <class T>
  std::vector<T> read(const Array<T>& array) const {
    std::vector<T> values(array.size());
    read(array, std::span<T>(values));
    return values;
  }
  HostBytes read(const Buffer& buffer) const {
    HostBytes bytes(buffer.size_bytes());
    detail::read(*this, buffer, {bytes.data(), bytes.size()});
    return bytes;
  }
  /// The same into memory of the caller's, of the same size. Errc::size_mismatch.
  template <class T>
  void read(const Array<T>& array, std::span<std::type_identity_t<T>> into) const {
    detail::read(*this, array, std::as_writable_bytes(into));
  }
  /// Completes when the data is there: a std::vector<T>, or HostBytes.
  template <class T, class... Tail>
  auto async_read(const Array<T>& array, Tail&&... tail) const;
  template <class... Tail>
  auto async_read(const Buffer& buffer, Tail&&... tail) const;

  /// What is known of the buffers' bytes, without waiting for the device.
  Health check(std::span<const Buffer> buffers) const;
  Health check(std::initializer_list<Buffer> buffers) const {
    return check(std::span<const Buffer>(buffers.begin(), buffers.size()));
  }
  template <class... Tail>
  auto async_check(std::span<const Buffer> buffers, Tail&&... tail) const;
  template <class... Tail>
  auto async_check(std::initializer_list<Buffer> buffers, Tail&&... tail) const;
  /// The failure that a read of `buffer` would answer now, null if none.
  FailurePtr failure(const Buffer& buffer) const;
  /// Takes back the marks of commands that never started: the bytes are again what they were.
  void restore(std::span<const Buffer> buffers) const;
  void restore(std::initializer_list<Buffer> buffers) const {
    restore(std::span<const Buffer>(buffers.begin(), buffers.size()));
  }

  template <class... Tail>
  auto async_restore(std::span<const Buffer> buffers, Tail&&... tail) const;
  template <class... Tail>
  auto async_restore(std::initializer_list<Buffer> buffers, Tail&&... tail) const;

  /// Returns when everything submitted before, by anybody, was accepted.
  void flush() const;
  template <class... Tail>
  auto async_flush(Tail&&... tail) const;
  /// Returns when everything submitted before on this stream has finished, well or not.
  void synchronize() const;
  template <class... Tail>
  auto async_synchronize(Tail&&... tail) const;

  // ---- events --------------------------------------------------------------------------------

  /// Marks the point this stream has come to.
  Event record(const EventOptions& options = {}) const;
  /// The same; nothing if it would have had to wait for room.
  std::optional<Event> try_record(const EventOptions& options = {}) const;
  template <class... Tail>
  auto async_record(const EventOptions& options, Tail&&... tail) const;
  template <class... Tail>
  requires(!detail::starts_with<EventOptions, Tail...>) auto async_record(Tail&&... tail) const;
  /// What is submitted on this stream from here on starts after `event`. A failure of the command
  /// the event stands behind is not spread by it: bytes carry failures. In a window, only for
  /// events that were recorded in it: capture_refused dooms it.
  void wait(const Event& event) const;
  bool try_wait(const Event& event) const;
  template <class... Tail>
  auto async_wait(const Event& event, Tail&&... tail) const;

  // ---- capture -------------------------------------------------------------------------------

  /// Records what `function` submits through the client it is given, which is on a stream of its
  /// own, and seals it into a graph that replays there. Nothing is executed; no warm-up is needed.
  /// What `function` throws is thrown on, and the window leaves no trace but `not_started` marks.
  ///
  /// Errc::capture_doomed   an operation could not be recorded; the cause says which.
  template <class F>
  Graph capture(F&& function, const CaptureOptions& options = {}) const {
    return detail::capture(*this, detail::record_function(function), options);
  }
  /// The same; completes with the graph when it is sealed. `function` is kept and called by whoever
  /// starts the operation, before that call returns: with most tokens it is this call, with lazy
  /// ones (asio::deferred, asio::use_awaitable) the one that launches or awaits it. What it throws
  /// arrives as capture_doomed, with FailureRecord::exception and, if it was a Failure, as cause.
  template <class F, class... Tail>
  auto async_capture(F&& function, const CaptureOptions& options, Tail&&... tail) const;
  template <class F, class... Tail>
  requires(!detail::starts_with<CaptureOptions, Tail...>) auto async_capture(F&& function,
                                                                             Tail&&... tail) const;
  /// Does the work of `function` once, recorded if it can be: captures it, replays the graph and
  /// answers it. What cannot be captured is run instead, by calling `function` once more with this
  /// client; the attempt leaves no marks, `reason` says what was in the way, and
  /// DeviceStatistics::fallbacks counts. What `function` throws is thrown on; of Failures only
  /// those of the second call, and those of the replay.
  template <class F>
  CaptureOrRun capture_or_run(F&& function, const CaptureOptions& options = {}) const {
    CaptureOrRun done;
    const auto record = detail::record_function(function);
    done.graph = detail::try_capture(*this, record, options, done.reason);
    if (done.graph) {
      done.graph.replay();
    } else {
      Client self = *this;
      function(self);
    }
    return done;
  }
  /// Names `buffer`, in the window of this stream, a slot of the graph to be: replays may bind the
  /// name to other bytes. Nodes name bytes inside the slot or outside of it, never both at once.
  /// With an Array, what is bound must have its element type too. Where no capture is prepared or
  /// recording this names nothing, so that a function that is captured may be run as well.
  ///
  /// Errc::empty_handle, wrong_device, closed
  /// Errc::invalid_argument  the name is empty; a number of copies. In the window: the name is
  ///                         taken. That dooms it, as do
  /// Errc::slot_overlap      the buffer shares bytes with another slot; a node with both sides of
  ///                         its border; memory that was never there; and a slot that is to rotate
  ///                         and cannot (invalid_argument, unsupported): replays read and write it,
  ///                         or write parts of it, or a host call or a graph uses it.
  ///
  /// The memory of further copies is found here, as by empty().
  void slot(std::string_view name, const Buffer& buffer, SlotPolicy policy = {}) const {
    detail::post_slot(*this, {name, buffer}, policy);
  }
  template <class T>
  void slot(std::string_view name, const Array<T>& array, SlotPolicy policy = {}) const {
    detail::post_slot(*this, {name, array}, policy);
  }
  /// Puts this stream into the window: prepare, then work that still executes (the warm-up), then
  /// start, then work that is recorded, then stop. Errc::capture_order in the wrong state, which
  /// changes nothing, except that a stop of a window that was only prepared takes it back.
  void prepare_capture(const CaptureOptions& options = {}) const;
  void start_capture() const;
  Graph stop_capture() const;
  /// Gives the window up, from any state, and lifts the marks of what it recorded.
  void abort_capture() const;
  /// The same; async_stop_capture completes with the Graph when it is sealed or refused.
  template <class... Tail>
  auto async_prepare_capture(const CaptureOptions& options, Tail&&... tail) const;
  template <class... Tail>
  requires(!detail::starts_with<CaptureOptions, Tail...>) auto async_prepare_capture(
      Tail&&... tail) const;
  template <class... Tail>
  auto async_start_capture(Tail&&... tail) const;
  template <class... Tail>
  auto async_stop_capture(Tail&&... tail) const;
  template <class... Tail>
  auto async_abort_capture(Tail&&... tail) const;

private:
  friend struct detail::ClientAccess;
  explicit Client(std::shared_ptr<detail::ClientStream> shared) noexcept
      : shared_(std::move(shared)) {}

  template <class T>
  detail::Operation* make_fill(const Array<T>& array, const T& value) const {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                  "fill repeats a pattern of 1, 2, 4 or 8 bytes");
    std::uint64_t pattern = 0;
    std::memcpy(&pattern, &value, sizeof value);
    return detail::make_fill(*this, array, pattern, sizeof(T), "fill");
  }

  std::shared_ptr<detail::ClientStream> shared_;
};

namespace detail {

/// What the copies of one client share; its queued commands share the stream only.
///
/// Lifetime  When the last copy goes, a window that is open ends at that place in the order.
struct ClientStream {
  explicit ClientStream(std::shared_ptr<LogicalStream> logical_) noexcept
      : logical(std::move(logical_)) {}
  ~ClientStream();
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  const std::shared_ptr<LogicalStream> logical;
};

struct ClientAccess {
  /// Null of an empty client.
  static const std::shared_ptr<LogicalStream>& stream(const Client& client) noexcept {
    static const std::shared_ptr<LogicalStream> none;
    return client.shared_ ? client.shared_->logical : none;
  }
  /// Throws std::bad_alloc.
  static Client make(std::shared_ptr<LogicalStream> stream) {
    return Client{std::make_shared<ClientStream>(std::move(stream))};
  }
};

}  // namespace detail

}  // namespace reprise

#include <reprise/runtime/client_async.hpp>  // IWYU pragma: export
