// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/check.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace reprise {

/// What went wrong, as a condition a program can branch on. to_string() and the docs of the verb
/// say more; a driver's own number is kept beside it in FailureRecord::native_code.
enum class Errc : std::uint8_t {
  // The caller's arguments and handles.
  invalid_argument = 1,  ///< A value no call of this verb accepts.
  out_of_range,          ///< A slice, offset or count reaches past its buffer.
  misaligned,            ///< An offset or size is no multiple of what the type or verb needs.
  size_mismatch,         ///< Two sizes that must agree do not.
  wrong_device,          ///< A handle of another device or runtime.
  empty_handle,          ///< A default-made or moved-from handle.
  empty_graph,           ///< Replay of a default-made Graph.
  no_such_device,        ///< No backend knows the name.
  no_such_kernel,        ///< The kernel has no body for this backend.
  no_such_slot,          ///< The graph has no slot of that name.
  slot_overlap,          ///< Ranges that were disjoint when recorded would not be when bound.
  // The state of the device.
  not_initialized,  ///< The backend cannot start here; the message names the cause.
  unsupported,      ///< The backend never can.
  closed,           ///< The runtime or device was shut down.
  device_lost,      ///< The device is gone; every later call answers this.
  timed_out,        ///< A deadline passed.
  // Capacity.
  channel_full,    ///< A library thread may not wait for room.
  would_block,     ///< A try_ form would have had to wait.
  would_deadlock,  ///< A blocking call on a thread that others wait for.
  out_of_memory,   ///< Nothing fits now.
  over_limit,      ///< The configured limit forbids it.
  never_fits,      ///< Larger than the device could ever hold.
  // Work.
  operation_aborted,  ///< Cancelled, or dropped by an abort, before it started.
  refused,            ///< The backend refused to take the command.
  kernel_failed,      ///< A kernel or host callback threw, or the device reported a fault.
  skipped,            ///< Not run, since its input carries a failure.
  unwritten,          ///< Nothing ever wrote these bytes.
  lease_held,         ///< Every copy of an output is leased.
  torn_down,          ///< A command vanished without an outcome; its bytes are suspect.
  // Capture.
  capture_order,      ///< prepare, start, stop, abort called in the wrong state.
  capture_refused,    ///< A verb that cannot be recorded was called on a recording client.
  capture_doomed,     ///< The recording is missing an operation and cannot seal.
  capture_abandoned,  ///< The window was closed by a stream that does not own it.
  growth_forbidden,   ///< An allocation in a window that was opened without growth.
  // Files and formats, used by tools and examples.
  io_error,
  bad_format,
};

/// The lower-case name of `code`, as in the enumeration.
std::string_view to_string(Errc code) noexcept;

/// The category of Errc, so that `error == reprise::Errc::closed` works on any error_code.
const std::error_category& errc_category() noexcept;
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), errc_category()};
}

/// Exact, so that headers which know other kinds of codes leave this comparison alone.
inline bool operator==(const std::error_code& code, Errc condition) noexcept {
  return code == make_error_code(condition);
}

/// Where in the user's program a call was made.
struct SourceLocation {
  const char* file = "";
  std::uint32_t line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          std::uint32_t line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

struct FailureRecord;
/// Failures are shared: by the bytes that carry them, by completions, by exceptions.
using FailurePtr = std::shared_ptr<const FailureRecord>;

/// One failure, written once and never changed.
///
/// Lifetime  Kept alive by every byte range, completion and exception that names it.
/// Threads   Immutable, so any thread may read it.
struct FailureRecord {
  std::uint64_t id = 0;  ///< Never used again in this process.
  Errc code = Errc::refused;
  int native_code = 0;       ///< The driver's own number, 0 if none.
  std::string verb;          ///< The call that failed, "launch", "replay" …
  std::string node;          ///< The kernel or graph node, empty if none.
  std::string message;       ///< What happened, with the values involved.
  std::uint64_t stream = 0;  ///< Logical stream, 0 if none.
  SourceLocation where;      ///< The caller's line, if known.
  std::chrono::steady_clock::time_point time{};
  FailurePtr cause;              ///< The failure that this one follows from.
  std::exception_ptr exception;  ///< What a kernel or host callback threw.

  /// The last record of the cause chain, this one if it has no cause.
  const FailureRecord& root() const noexcept;
  /// One line: verb, node, code, message; causes follow after "; because ".
  std::string text() const;
};

std::ostream& operator<<(std::ostream& out, const FailureRecord& record);

/// Makes a record with a fresh id. Never throws: without memory it answers a shared, static record
/// of Errc::out_of_memory.
FailurePtr make_failure(Errc code, std::string_view verb, std::string_view node,
                        std::string_view message, FailurePtr cause = nullptr) noexcept;
/// The same for callers that fill in more; `record.id` and `record.time` are set here.
FailurePtr make_failure(FailureRecord&& record) noexcept;

/// What plain verbs throw. code() compares equal to Errc; record() tells the rest.
class Failure : public std::system_error {
public:
  explicit Failure(FailurePtr record);
  Failure(Errc code, std::string_view verb, std::string_view message);

  /// The condition, for a switch.
  Errc errc() const noexcept { return record_->code; }
  const FailureRecord& record() const noexcept { return *record_; }
  const FailurePtr& shared_record() const noexcept { return record_; }

private:
  FailurePtr record_;
};

/// An error inside the library: a condition, the driver's own number, a text without allocation.
struct Error {
  Errc code = Errc::refused;
  int native_code = 0;
  const char* message = "";  ///< Static storage.
};

/// A value or an Error, for code that must not throw. About what std::expected is in C++23.
template <class T>
class [[nodiscard]] Result {
public:
  Result(T value) noexcept(std::is_nothrow_move_constructible_v<T>)  // NOLINT: implicit on purpose
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) noexcept : state_(std::in_place_index<1>, error) {}  // NOLINT
  Result(Errc code) noexcept : Result(Error{code}) {}                      // NOLINT

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }
  T& value() & noexcept {
    REPRISE_CHECK(has_value(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  const T& value() const& noexcept {
    REPRISE_CHECK(has_value(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  T&& value() && noexcept { return std::move(value()); }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }
  T&& operator*() && noexcept { return std::move(value()); }
  T* operator->() noexcept { return &value(); }
  const T* operator->() const noexcept { return &value(); }
  const Error& error() const noexcept {
    REPRISE_CHECK(!has_value(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }

private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
  Result() noexcept = default;
  Result(Error error) noexcept : failed_(true), error_(error) {}  // NOLINT: implicit on purpose
  Result(Errc code) noexcept : Result(Error{code}) {}             // NOLINT

  explicit operator bool() const noexcept { return !failed_; }
  bool has_value() const noexcept { return !failed_; }
  const Error& error() const noexcept {
    REPRISE_CHECK(failed_, "error() of a Result that succeeded");
    return error_;
  }

private:
  bool failed_ = false;
  Error error_{};
};

}  // namespace reprise

template <>
struct std::is_error_code_enum<reprise::Errc> : std::true_type {};
