// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/error.hpp>
#include <reprise/memory/hold.hpp>
#include <reprise/memory/page.hpp>
#include <reprise/memory/range.hpp>
#include <reprise/capture/device_captures.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace reprise {

/// Whether functions that get compiled or cached are pinned for a graph.
enum class CacheMode : std::uint8_t {
  normal,   ///< Rarely used entries may go.
  capture,  ///< Everything is kept: a replay must find what was recorded against.
};

/// How a window closed.
struct CaptureEnd {
  enum class Kind : std::uint8_t {
    owned,      ///< By the stream that opened it: a graph may seal.
    abandoned,  ///< By another stream: no graph may come of it.
  };
  Kind kind = Kind::owned;
  StreamId owner = 0;  ///< Who opened it.

  friend bool operator==(const CaptureEnd&, const CaptureEnd&) noexcept = default;
};

/// Device memory that a recording was given: bytes that must stay where they are for the graph's
/// life, and the stream whose memory they are.
struct TouchedRange {
  StreamId owner = 0;
  ByteRange addresses;

  friend bool operator==(const TouchedRange&, const TouchedRange&) noexcept = default;
};

/// Host memory that recorded writes read again on every replay.
struct RetainedHost {
  std::shared_ptr<const void> owner;
  std::uint64_t bytes = 0;
};

/// What closing a window tells when it makes no graph; null if nothing stands against one.
///
/// An abandoned window answers Errc::capture_abandoned, naming both streams, with `doom` as its
/// cause; a doomed one Errc::capture_doomed, caused by `doom`.
FailurePtr close_failure(const CaptureEnd& end, StreamId caller, FailurePtr doom) noexcept;

/// The capture of one backend stream: where it is in the lifecycle, and the memory that its
/// recorded commands were given.
///
///     no capture --prepare--> prepared --begin--> recording --end--> no capture
///                                abort, from anywhere ----------------^
///
/// A refused step changes nothing. Memory is remembered while recording and nowhere else, weakly:
/// a buffer that dies inside the window is forgotten. It is wanted when the window closes: if no
/// graph seals, or a replay is refused, reading it must fail.
///
/// Lifetime  Leaves the device's record when destroyed. DeviceCaptures must outlive it. abort(),
///           prepare() and the destructor drop what was retained and not taken: owners whose
///           deleter may not run on this thread bring one that hands them over.
/// Threads   One thread, the device's; device() may be copied and asked anywhere.
/// Errors    Errc::capture_order names the step and the state. Without host memory for its notes a
///           window is doomed with Errc::out_of_memory, since its lists would be incomplete.
class StreamCapture {
public:
  /// The capture of one more stream. Throws std::bad_alloc.
  StreamCapture(DeviceCaptures& device, StreamId stream);
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  StreamId stream() const noexcept { return stream_; }
  /// The captures of the whole device, this one included.
  const CaptureStatus& device() const noexcept { return device_->status(); }

  /// Opens the warm-up for `owner`. The capture starts empty, whatever an earlier one left behind.
  Result<void> prepare(StreamId owner, bool growth_allowed = false) noexcept;
  /// Opens the window: commands are recorded from here on. Primed staging is let go.
  Result<void> begin() noexcept;
  /// Closes the window. What it remembered waits to be taken.
  Result<CaptureEnd> end(StreamId caller) noexcept;
  /// Gives the capture up, wherever it is, and drops everything it remembered.
  void abort() noexcept;

  /// Remembers the memory a command was given. Nothing happens outside the window.
  void record(std::span<const HoldRange> buffers) noexcept;
  /// Remembers where that memory lies. Nothing happens outside the window.
  void touch(StreamId owner, ByteRange addresses) noexcept;
  /// Holds staging until begin(), so that each recorded copy finds one of its own. Nothing happens
  /// unless prepared.
  void prime(std::shared_ptr<const void> staging) noexcept;
  /// Keeps host bytes for the graph. The window must be recording.
  void retain_host(std::shared_ptr<const void> owner, std::uint64_t bytes) noexcept;
  /// Dooms the window: the recording lacks an operation. The first failure stays; nothing happens
  /// outside the window.
  void fail(FailurePtr failure) noexcept;

  /// The recorded memory that is still alive, each range of an allocation once, in the order of
  /// first use. Empty when called again.
  std::vector<HoldRange> take_recorded() noexcept;
  /// What was touched, each once, sorted by owner and address. Empty when called again.
  std::vector<TouchedRange> take_touched() noexcept;
  /// The retained host memory. Empty when called again.
  std::vector<RetainedHost> take_retained_host() noexcept;
  /// What doomed the window, if anything. Null when called again.
  FailurePtr take_failure() noexcept;

  bool is_recording() const noexcept { return state_ == State::recording; }
  /// Prepared or recording.
  bool is_active() const noexcept { return state_ != State::none; }
  /// The logical stream that opened the window, 0 while there is none.
  StreamId owner() const noexcept { return owner_; }
  CacheMode cache_mode() const noexcept {
    return is_active() ? CacheMode::capture : CacheMode::normal;
  }
  /// What requests of this stream may do to the mapped pages. A window with growth may add pages
  /// but gives none back, like every stream while any records.
  PageUpdate page_update() const noexcept;

private:
  enum class State : std::uint8_t { none, prepared, recording };
  struct Recorded {
    WeakHold hold;
    ByteRange range;
    std::size_t first_use = 0;
  };

  void clear() noexcept;
  void doom_without_memory() noexcept;
  void forget_repeated_records() noexcept;
  void forget_repeated_touches() noexcept;

  DeviceCaptures* device_;
  StreamId stream_;
  DeviceCaptures::Key key_;
  State state_ = State::none;
  bool growth_allowed_ = false;
  StreamId owner_ = 0;
  std::size_t uses_ = 0;
  std::vector<Recorded> recorded_;
  std::vector<HoldRange> live_;  // Empty; room for take_recorded(), which must not fail.
  std::vector<TouchedRange> touched_;
  std::vector<RetainedHost> retained_;
  std::vector<std::shared_ptr<const void>> primed_;
  FailurePtr failure_;
};

}  // namespace reprise
