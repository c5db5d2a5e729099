// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/error.hpp>

#include <atomic>
#include <ostream>

namespace reprise {

namespace {

// Ids are handed out once and never again. Relaxed: only uniqueness matters.
std::atomic<std::uint64_t> next_failure_id{1};

class ErrcCategory final : public std::error_category {
public:
  const char* name() const noexcept override { return "reprise"; }
  std::string message(int value) const override {
    return std::string(to_string(static_cast<Errc>(value)));
  }
  std::error_condition default_error_condition(int value) const noexcept override {
    switch (static_cast<Errc>(value)) {
      case Errc::out_of_memory: return std::errc::not_enough_memory;
      case Errc::operation_aborted: return std::errc::operation_canceled;
      case Errc::timed_out: return std::errc::timed_out;
      case Errc::would_deadlock: return std::errc::resource_deadlock_would_occur;
      case Errc::would_block: return std::errc::operation_would_block;
      case Errc::invalid_argument: return std::errc::invalid_argument;
      default: return {value, *this};
    }
  }
};

// What make_failure answers when there is no memory for a record. Made before main, so that it
// exists whenever it is needed.
const FailurePtr no_memory_for_failure = [] {
  auto record = std::make_shared<FailureRecord>();
  record->id = next_failure_id.fetch_add(1, std::memory_order_relaxed);
  record->code = Errc::out_of_memory;
  record->message = "no host memory to describe the failure";
  return record;
}();

}  // namespace

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::out_of_range: return "out_of_range";
    case Errc::misaligned: return "misaligned";
    case Errc::size_mismatch: return "size_mismatch";
    case Errc::wrong_device: return "wrong_device";
    case Errc::empty_handle: return "empty_handle";
    case Errc::empty_graph: return "empty_graph";
    case Errc::no_such_device: return "no_such_device";
    case Errc::no_such_kernel: return "no_such_kernel";
    case Errc::no_such_slot: return "no_such_slot";
    case Errc::slot_overlap: return "slot_overlap";
    case Errc::not_initialized: return "not_initialized";
    case Errc::unsupported: return "unsupported";
    case Errc::closed: return "closed";
    case Errc::device_lost: return "device_lost";
    case Errc::timed_out: return "timed_out";
    case Errc::channel_full: return "channel_full";
    case Errc::would_block: return "would_block";
    case Errc::would_deadlock: return "would_deadlock";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::over_limit: return "over_limit";
    case Errc::never_fits: return "never_fits";
    case Errc::operation_aborted: return "operation_aborted";
    case Errc::refused: return "refused";
    case Errc::kernel_failed: return "kernel_failed";
    case Errc::skipped: return "skipped";
    case Errc::unwritten: return "unwritten";
    case Errc::lease_held: return "lease_held";
    case Errc::torn_down: return "torn_down";
    case Errc::capture_order: return "capture_order";
    case Errc::capture_refused: return "capture_refused";
    case Errc::capture_doomed: return "capture_doomed";
    case Errc::capture_abandoned: return "capture_abandoned";
    case Errc::growth_forbidden: return "growth_forbidden";
    case Errc::io_error: return "io_error";
    case Errc::bad_format: return "bad_format";
  }
  return "unknown";
}

const std::error_category& errc_category() noexcept {
  static const ErrcCategory category;
  return category;
}

const FailureRecord& FailureRecord::root() const noexcept {
  const FailureRecord* record = this;
  while (record->cause) record = record->cause.get();
  return *record;
}

std::string FailureRecord::text() const {
  std::string out;
  for (const FailureRecord* record = this; record; record = record->cause.get()) {
    if (record != this) out += "; because ";
    if (!record->verb.empty()) out += record->verb;
    if (!record->node.empty()) out += " of '" + record->node + "'";
    if (!record->verb.empty() || !record->node.empty()) out += ": ";
    out += to_string(record->code);
    if (!record->message.empty()) out += ": " + record->message;
    if (record->native_code != 0) out += " (code " + std::to_string(record->native_code) + ")";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const FailureRecord& record) {
  return out << record.text();
}

FailurePtr make_failure(Errc code, std::string_view verb, std::string_view node,
                        std::string_view message, FailurePtr cause) noexcept {
  try {
    FailureRecord record;
    record.code = code;
    record.verb = verb;
    record.node = node;
    record.message = message;
    record.cause = std::move(cause);
    return make_failure(std::move(record));
  } catch (...) {
    return no_memory_for_failure;
  }
}

FailurePtr make_failure(FailureRecord&& record) noexcept {
  try {
    record.id = next_failure_id.fetch_add(1, std::memory_order_relaxed);
    record.time = std::chrono::steady_clock::now();
    return std::make_shared<const FailureRecord>(std::move(record));
  } catch (...) {
    return no_memory_for_failure;
  }
}

Failure::Failure(FailurePtr record)
    : std::system_error(make_error_code(record->code), record->text()), record_(std::move(record)) {
}

Failure::Failure(Errc code, std::string_view verb, std::string_view message)
    : Failure(make_failure(code, verb, {}, message)) {}

}  // namespace reprise
