// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace reprise {

/// A logical stream, by its number in the process. 0 names none.
using StreamId = std::uint64_t;

namespace detail {

/// What is shared between the record of a device's captures and those who look at it.
struct CaptureTable {
  enum class Phase : std::uint8_t { none, preparing, recording };
  struct Entry {
    std::uint64_t key = 0;
    StreamId owner = 0;
    Phase phase = Phase::none;
  };

  mutable std::mutex mutex;  ///< Guards `entries` and every store to the two counters.
  std::vector<Entry> entries;
  std::atomic<std::uint32_t> active{0};     ///< Entries that prepare or record.
  std::atomic<std::uint32_t> recording{0};  ///< Entries that record.
};

}  // namespace detail

/// What anybody may ask about the captures of one device.
///
/// Lifetime  A handle; it may outlive the device, which then captures nothing any more.
/// Threads   Any thread, without waiting for the device thread. While no capture is open an answer
///           costs one atomic load, else also a look through the few open ones under their mutex.
class CaptureStatus {
public:
  /// Whether `stream` has opened a window: from an accepted prepare until the capture has ended.
  bool is_capturing(StreamId stream) const noexcept;
  /// Whether any stream of the device is recording at the moment.
  bool any_recording() const noexcept {
    // Acquire: pairs with the release in DeviceCaptures::change().
    return table_->recording.load(std::memory_order_acquire) != 0;
  }

private:
  friend class DeviceCaptures;
  explicit CaptureStatus(std::shared_ptr<const detail::CaptureTable> table) noexcept
      : table_(std::move(table)) {}

  std::shared_ptr<const detail::CaptureTable> table_;
};

/// The record of all captures of one device. Each StreamCapture has an entry in it and reports
/// every step of its lifecycle. The counters are computed anew from the entries each time, so calls
/// that do not match cannot leave them wrong.
///
/// Lifetime  Outlived by its status handles; outlives the captures that entered.
/// Threads   Any thread may call any member; in practice the device thread does.
class DeviceCaptures {
public:
  /// Names one entry. Never used again; 0 names none.
  using Key = std::uint64_t;

  DeviceCaptures();
  DeviceCaptures(const DeviceCaptures&) = delete;
  DeviceCaptures& operator=(const DeviceCaptures&) = delete;

  const CaptureStatus& status() const noexcept { return status_; }

  /// Adds an entry with no capture open. Throws std::bad_alloc; the other verbs need no memory.
  Key enter();
  /// Forgets the entry and whatever it was doing.
  void leave(Key key) noexcept;

  /// A window was prepared by `owner`.
  void prepared(Key key, StreamId owner) noexcept;
  /// The prepared window has opened. Nothing happens if none is prepared.
  void began(Key key) noexcept;
  /// The window is gone, whichever way. Nothing happens if there is none.
  void ended(Key key) noexcept;

private:
  template <class F>
  void change(Key key, F&& f) noexcept;

  std::shared_ptr<detail::CaptureTable> table_;
  CaptureStatus status_;
  Key last_key_ = 0;  // Guarded by the table's mutex.
};

}  // namespace reprise
